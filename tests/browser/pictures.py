"""Pictures of every page of a running site: `python -m tests.browser.pictures LINK FOLDER`, with a link that signs in.

Each page is drawn at the width of a phone, a tablet and a desk, in both themes. Listed for each: status, errors of
scripts, what sticks out to the right, number of nodes. The exit code is 1 if one of them is not as it should be.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Page, sync_playwright

from tests.browser.chromium import HOW_TO_GET_ONE, browser_path
from tests.browser.pages import PAGES, SitePage, addresses

SIZES = ((390, 844), (1024, 768), (1440, 900))
THEMES = ("light", "dark")
MOST_NODES = 1_500
TIMEOUT_MS = 60_000
NODES = "document.querySelectorAll('*').length"
STICKS_OUT = "Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth)"


def draw(tab: Page, one: SitePage, url: str, folder: Path) -> list[str]:
    """Draw one page in all sizes and themes, print its line, and give back what is wrong with it."""
    faults: list[str] = []
    nodes, status = 0, None
    complaints: list[str] = []
    listeners = {
        "pageerror": lambda error: complaints.append(str(error)),
        "console": lambda message: message.type == "error" and complaints.append(message.text),
    }
    for event, listener in listeners.items():
        tab.on(event, listener)  # type: ignore[call-overload]  # one overload for each event
    for width, height in SIZES:
        tab.set_viewport_size({"width": width, "height": height})
        answer = tab.goto(url, wait_until="networkidle")
        status = answer.status if answer else None
        if one.awaits:
            tab.wait_for_selector(one.awaits)
        nodes = max(nodes, tab.evaluate(NODES))
        if over := tab.evaluate(STICKS_OUT):
            faults.append(f"{over} px too wide at {width}")
        for theme in THEMES:
            tab.emulate_media(color_scheme=theme, reduced_motion="reduce")
            tab.screenshot(path=folder / f"{one.name}-{width}-{theme}.png")
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)
    if status != one.status:
        faults.append(f"status {status}, not {one.status}")
    if nodes > MOST_NODES:
        faults.append(f"more than {MOST_NODES} nodes")
    # The browser calls a page that is meant to be missing an error.
    faults.extend(sorted({text for text in complaints if one.status == 200 or "Failed to load resource" not in text}))
    sys.stdout.write(f"{one.name:<16} {status}  {nodes:>5} nodes  {'; '.join(faults) or 'ok'}\n")
    sys.stdout.flush()
    return faults


def pictures(link: str, folder: Path, only: Sequence[str]) -> int:
    """Draw the pages; the number of those with a fault."""
    path = browser_path()
    if path is None:
        sys.exit(HOW_TO_GET_ONE)
    site = "{0.scheme}://{0.netloc}".format(urlsplit(link))
    faulty = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        signed_in, stranger = browser.new_context(), browser.new_context()
        for context in (signed_in, stranger):
            context.set_default_timeout(TIMEOUT_MS)
        tabs = {False: signed_in.new_page(), True: stranger.new_page()}
        tabs[False].goto(link)
        if "/sign-in/" in tabs[False].url:
            sys.exit("The link did not sign in: it works once, for an hour. `manage.py sign_in_link` prints another.")
        for one, address in addresses(signed_in, site).items():
            if only and one.name not in only:
                continue
            if address is None:
                sys.stdout.write(f"{one.name:<16} nothing on this site leads to one\n")
                continue
            faulty += bool(draw(tabs[one.is_public], one, site + address, folder))
        browser.close()
    return faulty


def main() -> None:
    names = ", ".join(page.name for page in PAGES)
    parser = argparse.ArgumentParser(prog="python -m tests.browser.pictures", description=__doc__.partition("\n")[0])
    parser.add_argument("link", help="a link that signs in, from `manage.py sign_in_link`")
    parser.add_argument("folder", type=Path, help="where the pictures go, as NAME-WIDTH-THEME.png")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help=f"some of the pages: {names}")
    arguments = parser.parse_args()
    if unknown := set(arguments.only) - {page.name for page in PAGES}:
        parser.error(f"no page is called {', '.join(sorted(unknown))}; there are {names}")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if faulty := pictures(arguments.link, arguments.folder, arguments.only):
        sys.exit(f"{faulty} pages are not as they should be.")


if __name__ == "__main__":
    main()
