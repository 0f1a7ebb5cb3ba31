"""The commits of a git repository as memories, oldest first, streamed from `git log`."""

import contextlib
import hashlib
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Collection, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from categories.paths import MAX_DEPTH
from memories.records import MAX_CONTENT
from transfer.formats.base import (
    ImportFailedError,
    NotReadableError,
    Options,
    Reading,
    RefusedRecord,
    SourceRecord,
    read_guarded,
)
from transfer.formats.importer import Following, Importer

MAX_FILES_LISTED = 50
MAX_FOLDERS = 3
# Leaves room for the list of files below a message.
_MAX_MESSAGE = MAX_CONTENT - 50_000
_READ = 1 << 20

_LOCATION = "commit "
# Messages and paths contain no NUL, so a part that starts like this is a commit, and any other a path.
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
# Abbreviations that look like keys of a tracker.
_NO_TICKETS = re.compile(
    "AES|ANSI|ASCII|BSD|CP|CVE|EC|ECMA|ES|GB|GH|GPL|HMAC|HTTP|IEC|IEEE|IPV|ISO|KB|LGPL|MB|MD|MIT|MPL|PEP|PKCS|RFC|RSA|SHA"
    "|SSL|TLS|UCS|UTC|UTF|WIN"
)
_REVERTS = re.compile(r"\bthis reverts commit (?P<sha>[0-9a-f]{7,64})", re.IGNORECASE)
_PICKED = re.compile(r"\(cherry picked from commit (?P<sha>[0-9a-f]{7,64})\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Forge:
    """The web addresses of a repository's commits and issues; empty for unknown hosts."""

    repository: str
    commit: str = ""
    issue: str = ""


# Host -> the parts of its addresses between the repository and a commit or an issue.
_FORGES = {
    "github.com": ("/commit/", "/issues/"),
    "gitlab.com": ("/-/commit/", "/-/issues/"),
    "bitbucket.org": ("/commits/", "/issues/"),
    "codeberg.org": ("/commit/", "/issues/"),
}


def knows(path: Path) -> bool:
    """Whether a path is a folder with `.git` in it, or a bare repository."""
    if not path.is_dir():
        return False
    return (path / ".git").exists() or all((path / name).exists() for name in ("HEAD", "objects", "refs"))


def read(path: Path, options: Options) -> Reading:
    if not path.is_dir():
        raise NotReadableError(f"{path}: is not a folder; a git repository is one.")
    if not _git(path, "rev-parse", "--verify", "--quiet", "HEAD", failing=""):
        _git(path, "rev-parse", "--git-dir")
        raise NotReadableError(f"{path}: the repository has no commits yet.")
    total = int(_git(path, "rev-list", "--count", "HEAD"))
    return _reading(path, options, total)


def read_parts(path: Path, options: Options, locations: Collection[str]) -> Reading:
    return _reading(path, options, len(locations), [one.removeprefix(_LOCATION) for one in locations])


def stamp(path: Path) -> str:
    """The commits that the branches, tags and `HEAD` are at."""
    if not path.is_dir():
        raise ImportFailedError(f"{path}: is not there.")
    # `show-ref` fails without a commit, and `rev-parse` gives the reason if it is no repository.
    refs = _git(path, "show-ref", "--head", failing="") or _git(path, "rev-parse", "--git-dir")
    return hashlib.blake2b(refs.encode(), digest_size=16).hexdigest()


def parts(path: Path) -> Iterator[tuple[str, str]]:
    """The commits of `HEAD`, and those of other branches and tags, which are still there but not imported."""
    if not _git(path, "rev-parse", "--verify", "--quiet", "HEAD", failing=""):
        return
    for sha in _git(path, "rev-list", "HEAD", "--").split():
        yield _location(sha), "commit"
    for sha in _git(path, "rev-list", "--all", "--not", "HEAD", "--").split():
        yield _location(sha), ""


def _location(sha: str) -> str:
    return f"{_LOCATION}{sha[:12]}"


def _reading(path: Path, options: Options, total: int, chosen: Collection[str] | None = None) -> Reading:
    project = options.project or path.resolve().name.removesuffix(".git")
    forge = forge_of(_git(path, "config", "--get", "remote.origin.url", failing=""), project)
    done = 0

    def commit_records(fields: list[str], files: list[str]) -> Iterator[SourceRecord]:
        yield SourceRecord(_location(fields[0]), _record(fields, files, project, forge))

    def records() -> Generator[SourceRecord | RefusedRecord, None, None]:
        nonlocal done
        with contextlib.closing(_commits(path, chosen)) as commits:
            for fields, files in commits:
                yield from read_guarded(_location(fields[0]), partial(commit_records, fields, files))
                done += 1

    return Reading(records(), lambda: done / total if total else None)


def _environment() -> dict[str, str]:
    """The environment of git: no prompts, no locks, and no fetches in a partial clone."""
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C.UTF-8"}
    # Hooks set these to their own repository.
    named = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"}
    return {name: value for name, value in os.environ.items() if name not in named} | quiet


def _git(path: Path, *question: str, failing: str | None = None) -> str:
    """The output of git. If git fails, `failing`, or else ImportFailedError with its message."""
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


def _first_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[0].removeprefix("fatal: ") if lines else "it gives no reason"


def _commits(path: Path, chosen: Collection[str] | None = None) -> Generator[tuple[list[str], list[str]], None, None]:
    """The fields and the files of each commit of `HEAD`, or of the chosen ones, the oldest first."""
    which = ["HEAD"] if chosen is None else ["--no-walk=sorted", "--stdin"]
    command = [*_GIT, "-C", str(path), *_LOG, "--encoding=UTF-8", f"--format={_FORMAT}", *which, "--"]
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as named:
        named.write("".join(f"{sha}\n" for sha in chosen or ()).encode())
        named.seek(0)
        process = subprocess.Popen(command, stdin=named, stdout=subprocess.PIPE, stderr=errors, env=_environment())
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
    """The texts between NULs; invalid UTF-8 is replaced."""
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
    # A wrapped subject continues until the first empty line, as in git.
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
    """Whether a date is valid: broken clocks and tools write years that no calendar has."""
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
    """The body of the message, or else its subject, and the files below it."""
    text = (body or subject)[:_MAX_MESSAGE]
    if not files:
        return text
    # Paths are code, so that their characters are not Markdown.
    listed = "\n".join(f"- `{' '.join(name.replace('`', chr(39)).split())[:500]}`" for name in files[:MAX_FILES_LISTED])
    more = f"\n- and {len(files) - MAX_FILES_LISTED:,} more" if len(files) > MAX_FILES_LISTED else ""
    return f"{text}\n\nFiles:\n\n{listed}{more}"


def _folders(files: list[str]) -> list[str]:
    """The folders with the most files, as categories."""
    folders = Counter(name.rpartition("/")[0] for name in files)
    chosen = sorted(folders.items(), key=lambda item: (-item[1], item[0]))[:MAX_FOLDERS]
    # A path ends before a step that is too long for a category.
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
    """Issues, tickets and other commits of the repository."""
    links: dict[str, dict[str, str]] = {}

    def add(rel: str, target: str, url: str = "") -> None:
        # "resolves" says more than "mentions".
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
    """The web addresses of a remote, without any user name and password in it."""
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


IMPORTER = Importer(
    "git",
    "a git repository (a folder with .git)",
    lambda source: knows(source.path),
    read,
    follow=Following(stamp, parts, read_parts),
)
