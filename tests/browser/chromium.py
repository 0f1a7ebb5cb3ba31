"""The browser that the tests drive. `python -m tests.browser.chromium` finds one, or gets one.

The order: $CHROMIUM, a Chromium or Chrome on the PATH, Playwright's download, Debian's package when root.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
HOW_TO_GET_ONE = (
    "No browser for the tests. Install Chromium or Chrome (apt-get install chromium; brew install google-chrome) "
    "or set CHROMIUM to the path of one, and run make test again."
)
DOWNLOAD_SECONDS = 600


def installed_browser() -> str | None:
    """The path of a browser of this machine, None when there is none. A wrong $CHROMIUM is an error, not a miss."""
    if named := os.environ.get("CHROMIUM"):
        found = shutil.which(named)
        if found is None:
            sys.exit(f"CHROMIUM={named!r} is not a program. Name a Chromium or Chrome, or unset it.")
        return found
    candidates = (shutil.which(name) for name in (*NAMES, MAC))
    return next((path for path in candidates if path and starts(path)), None)


def browser_path() -> str | None:
    """The path of the browser to drive: an installed one, else Playwright's own. None when there is neither."""
    return installed_browser() or playwrights_own()


def playwrights_own() -> str | None:
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() and starts(path) else None


def starts(path: str) -> bool:
    """A browser that was found may still lack libraries, or be a wrapper that tells you to install something."""
    try:
        asked = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0 and any(name in asked.stdout for name in ("Chrom", "Chrome"))


def get_one() -> str:
    """Find a browser, or install one; end the program with what to do when neither works."""
    if path := browser_path():
        return path
    sys.stdout.write("No browser found: letting Playwright download its Chromium ...\n")
    sys.stdout.flush()
    attempt([sys.executable, "-m", "playwright", "install", "chromium"])
    if path := browser_path():
        return path
    if os.geteuid() == 0 and shutil.which("apt-get"):
        sys.stdout.write("That did not work here: installing Debian's chromium ...\n")
        sys.stdout.flush()
        attempt(["apt-get", "update", "-qq"])
        attempt(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"])
        if path := browser_path():
            return path
    sys.exit(HOW_TO_GET_ONE)


def attempt(command: list[str]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        subprocess.run(command, check=False, timeout=DOWNLOAD_SECONDS, env=environment)
    except subprocess.TimeoutExpired:
        sys.stdout.write(f"{command[0]} took longer than {DOWNLOAD_SECONDS} seconds.\n")


if __name__ == "__main__":
    sys.stdout.write(f"Browser: {get_one()}\n")
