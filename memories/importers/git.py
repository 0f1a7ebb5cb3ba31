"""The commits of a git repository as dated memories, oldest first, streamed from `git log`."""

import contextlib
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from categories.paths import MAX_DEPTH
from memories.importers.base import (
    Found,
    Importer,
    ImportFailedError,
    NotReadableError,
    Options,
    Reading,
    RefusedRecord,
)
from memories.records import MAX_CONTENT

MAX_FILES_LISTED = 50
MAX_FOLDERS = 3
# Room for the list of files below a message.
_MAX_MESSAGE = MAX_CONTENT - 50_000
_READ = 1 << 20

# Neither a message nor a path holds NUL, so a part that starts like this is a commit, and every other a path.
_MARK = "\x1e"
_FORMAT = "%x1e" + "%x1f".join(("%H", "%P", "%aI", "%cI", "%aN", "%B"))
_COMMIT = re.compile(rf"\n?{_MARK}[0-9a-f]{{40,64}}\x1f")
_GIT = ("git", "--no-pager", "-c", "core.fsmonitor=false", "-c", "log.showSignature=false")
_LOG = ("log", "--reverse", "-z", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")

_CONVENTIONAL = re.compile(r"(?P<type>[A-Za-z]+)(?:\((?P<scope>[^()\n]*)\))?(?P<breaking>!)?:\s")
_TYPES = {
    "feat": "feature",
    "feature": "feature",
    "fix": "fix",
    "bugfix": "fix",
    "hotfix": "fix",
    "docs": "documentation",
    "doc": "documentation",
    "perf": "performance",
    "refactor": "refactor",
    "revert": "revert",
    "test": "test",
    "tests": "test",
    "build": "build",
    "ci": "ci",
    "chore": "chore",
    "style": "style",
    "security": "security",
    "release": "release",
}
_FIX_WORDS = re.compile(r"\b(?:fix(?:e[sd]|ing)?|bug(?:fix)?|hotfix|repair(?:s|ed)?|correct(?:s|ed)?)\b", re.IGNORECASE)
_CO_AUTHOR = re.compile(r"^co-authored-by:[ \t]*(?P<name>[^<\n]+)", re.IGNORECASE | re.MULTILINE)
_RESOLVES = r"(?P<resolves>\b(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?)\b:?[ \t]+)?"
_ISSUE = re.compile(
    rf"{_RESOLVES}(?<![\w&/#])(?P<repository>[\w.-]+/[\w.-]+)?(?:#|\bGH-)(?P<number>\d{{1,9}})\b", re.IGNORECASE
)
_TICKET = re.compile(rf"{_RESOLVES}(?<![\w/.-])(?P<key>[A-Z][A-Z0-9]{{1,9}})-(?P<number>\d{{1,7}})(?![\w-]|\.\d)")
# Names that look like a tracker's key and are none.
_NO_TICKETS = re.compile(
    "AES|ANSI|ASCII|BSD|CP|CVE|EC|ECMA|ES|GB|GH|GPL|HMAC|HTTP|IEC|IEEE|IPV|ISO|KB|LGPL|MB|MD|MIT|MPL|PEP|PKCS|RFC|RSA|SHA"
    "|SSL|TLS|UCS|UTC|UTF|WIN"
)
_REVERTS = re.compile(r"\bthis reverts commit (?P<sha>[0-9a-f]{7,64})", re.IGNORECASE)
_PICKED = re.compile(r"\(cherry picked from commit (?P<sha>[0-9a-f]{7,64})\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Forge:
    """Where commits and issues of a repository can be read; empty where its remote is none that is known."""

    repository: str
    commit: str = ""
    issue: str = ""


# Host -> the parts of an address between the repository and a commit or an issue.
_FORGES = {
    "github.com": ("/commit/", "/issues/"),
    "gitlab.com": ("/-/commit/", "/-/issues/"),
    "bitbucket.org": ("/commits/", "/issues/"),
    "codeberg.org": ("/commit/", "/issues/"),
}


def knows(path: Path) -> bool:
    """A folder with `.git` in it, or a bare repository."""
    if not path.is_dir():
        return False
    return (path / ".git").exists() or all((path / name).exists() for name in ("HEAD", "objects", "refs"))


def read(path: Path, options: Options) -> Reading:
    if not path.is_dir():
        raise NotReadableError(f"{path}: is not a folder; a git repository is one.")
    if not _asked(path, "rev-parse", "--verify", "--quiet", "HEAD", failing=""):
        _asked(path, "rev-parse", "--git-dir")
        raise NotReadableError(f"{path}: the repository has no commits yet.")
    total = int(_asked(path, "rev-list", "--count", "HEAD"))
    project = options.project or path.resolve().name.removesuffix(".git")
    forge = forge_of(_asked(path, "config", "--get", "remote.origin.url", failing=""), project)
    done = 0

    def records() -> Generator[Found | RefusedRecord, None, None]:
        nonlocal done
        with contextlib.closing(_commits(path)) as commits:
            for fields, files in commits:
                yield Found(f"commit {fields[0][:12]}", _record(fields, files, project, forge))
                done += 1

    return Reading(records(), lambda: done / total if total else None)


def _environment() -> dict[str, str]:
    """Git asks nobody, takes no locks, and fetches nothing that a partial clone lacks."""
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C.UTF-8"}
    # A hook that runs this names its own repository in these.
    named = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"}
    return {name: value for name, value in os.environ.items() if name not in named} | quiet


def _asked(path: Path, *question: str, failing: str | None = None) -> str:
    """What git answers. Where it fails, `failing`, or the import fails with git's own words."""
    try:
        done = subprocess.run([*_GIT, "-C", str(path), *question], capture_output=True, env=_environment(), check=False)
    except FileNotFoundError:
        raise ImportFailedError(
            "git is not installed, or not on the PATH; install it to import repositories."
        ) from None
    if done.returncode:
        if failing is not None:
            return failing
        raise ImportFailedError(f"{path}: git cannot read it: {_first_line(done.stderr)}")
    return done.stdout.decode(errors="replace").strip()


def _first_line(said: bytes) -> str:
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[0].removeprefix("fatal: ") if lines else "it gives no reason"


def _commits(path: Path) -> Generator[tuple[list[str], list[str]], None, None]:
    """The fields of each commit and the files it touches."""
    command = [*_GIT, "-C", str(path), *_LOG, "--encoding=UTF-8", f"--format={_FORMAT}", "HEAD", "--"]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=_environment())
        try:
            assert process.stdout is not None  # noqa: S101 - it was asked for
            fields: list[str] | None = None
            files: list[str] = []
            for part in _parts(process.stdout):
                if _COMMIT.match(part):
                    if fields:
                        yield fields, files
                    fields, files = part.lstrip("\n").removeprefix(_MARK).split("\x1f", 5), []
                elif name := part.lstrip("\n"):
                    files.append(name)
            if process.wait():
                errors.seek(0)
                raise ImportFailedError(
                    f"{path}: git stopped in the middle: {_first_line(errors.read())}. Nothing was imported."
                )
            if fields:
                yield fields, files
        finally:
            if process.stdout:
                process.stdout.close()
            process.kill()
            process.wait()


def _parts(stream: IO[bytes]) -> Iterator[str]:
    """What stands between NULs, as text; bytes that are not UTF-8 are replaced."""
    rest = b""
    while chunk := stream.read(_READ):
        *whole, rest = (rest + chunk).split(b"\0")
        for part in whole:
            yield part.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


def _record(fields: list[str], files: list[str], project: str, forge: Forge) -> dict[str, Any]:
    sha, parents, authored, committed, author, message = fields
    message = message.strip().replace("\0", "")
    subject, _, body = message.partition("\n")
    # A subject that is wrapped goes on until the first empty line, for git as for us.
    if body and not body.startswith("\n"):
        wrapped, _, body = body.partition("\n\n")
        subject = f"{subject} {' '.join(wrapped.split())}"
    memory_type, tags = _type_and_tags(subject, body, len(parents.split()) > 1)
    authors = [author.strip(), *(match["name"].strip() for match in _CO_AUTHOR.finditer(body))]
    return {
        "id": sha,
        "project": project,
        "type": memory_type,
        "title": subject[:1000] or f"Commit {sha[:12]}",
        "content": _content(subject or f"Commit {sha[:12]}", body.strip(), files),
        "tags": tags,
        "categories": _folders(files),
        "authors": [name[:200] for name in dict.fromkeys(authors) if name][:100],
        "links": _links(message, forge)[:500],
        "created_at": authored if _is_date(authored) else committed,
        "source": "git",
        "source_url": forge.commit + sha if forge.commit else "",
    }


def _is_date(text: str) -> bool:
    """Broken clocks and broken tools write years that no calendar has."""
    return re.match(r"(?!0000)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-](?:0\d|1[0-4]):[0-5]\d)\Z", text) is not None


def _type_and_tags(subject: str, body: str, is_merge: bool) -> tuple[str, list[str]]:
    tags: list[str] = []
    conventional = _CONVENTIONAL.match(subject)
    if conventional and (known := _TYPES.get(conventional["type"].lower())):
        tags += [scope.strip() for scope in re.split(r"[,|]", conventional["scope"] or "") if scope.strip()]
        if conventional["breaking"] or "BREAKING CHANGE" in body:
            tags.append("breaking")
        return known, [tag[:200] for tag in tags]
    if is_merge:
        return "merge", tags
    if subject.startswith('Revert "'):
        return "revert", tags
    return ("fix" if _FIX_WORDS.search(subject) else "change"), tags


def _content(subject: str, body: str, files: list[str]) -> str:
    """The body of the message, or its subject where there is no more, and the files below."""
    text = (body or subject)[:_MAX_MESSAGE]
    if not files:
        return text
    # A path is shown as code, whatever is in it.
    listed = "\n".join(f"- `{' '.join(name.replace('`', chr(39)).split())[:500]}`" for name in files[:MAX_FILES_LISTED])
    more = f"\n- and {len(files) - MAX_FILES_LISTED:,} more" if len(files) > MAX_FILES_LISTED else ""
    return f"{text}\n\nFiles:\n\n{listed}{more}"


def _folders(files: list[str]) -> list[str]:
    """The folders with most of the files, as categories."""
    folders = Counter(name.rpartition("/")[0] for name in files)
    chosen = sorted(folders.items(), key=lambda item: (-item[1], item[0]))[:MAX_FOLDERS]
    # A name that is too long for a category ends the path above it.
    paths = []
    for folder, _ in chosen:
        steps: list[str] = []
        for step in folder.split("/")[: MAX_DEPTH - 1]:
            if len(step) > 100:
                break
            steps.append(step)
        paths.append("/".join(["Files", *steps]).rstrip("/"))
    return list(dict.fromkeys(paths))


def _links(message: str, forge: Forge) -> list[dict[str, str]]:
    """Issues, tickets, and other commits of the repository."""
    links: dict[str, dict[str, str]] = {}

    def add(rel: str, target: str, url: str = "") -> None:
        # That it resolves an issue says more than that it mentions it.
        if target not in links or (rel == "resolves" and links[target]["rel"] == "mentions"):
            links[target] = {"rel": rel, "target": target, "url": url}

    for match in _REVERTS.finditer(message):
        add("reverts", match["sha"].lower())
    for match in _PICKED.finditer(message):
        add("cherry-picked-from", match["sha"].lower())
    for match in _ISSUE.finditer(message):
        rel = "resolves" if match["resolves"] else "mentions"
        number, elsewhere = match["number"], match["repository"]
        if elsewhere:
            add(rel, f"{elsewhere}#{number}")
        else:
            add(rel, f"{forge.repository}#{number}", forge.issue + number if forge.issue else "")
    for match in _TICKET.finditer(message):
        if not _NO_TICKETS.fullmatch(match["key"]):
            add("resolves" if match["resolves"] else "mentions", f"{match['key']}-{match['number']}")
    return list(links.values())


def forge_of(remote: str, repository: str) -> Forge:
    """The web addresses that a remote stands for. Whatever name or password is in it is left out."""
    if match := re.fullmatch(r"[\w.-]+@(?P<host>[\w.-]+):(?P<path>.+)", remote):
        host, path = match["host"], match["path"]
    else:
        try:
            parts = urlsplit(remote)
            host, path = parts.hostname or "", parts.path
        except ValueError:
            return Forge(repository)
    path = path.strip("/").removesuffix(".git")
    addresses = _FORGES.get(host.lower())
    if addresses is None or not re.fullmatch(r"[\w.~-]+(?:/[\w.~-]+)+", path):
        return Forge(repository)
    web = f"https://{host.lower()}/{path}"
    return Forge(path.rpartition("/")[2], web + addresses[0], web + addresses[1])


IMPORTER = Importer("git", "a git repository (a folder with .git)", knows, read)
