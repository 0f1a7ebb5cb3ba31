"""Secrets in texts, such as keys, tokens and passwords: found by the rules of Kingfisher and by some of our own."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

# No wheels for Macs with Intel.
_is_available = find_spec("kingfisher_sdk") is not None
_RULES = Path(__file__).with_name("secret_rules.yml")
_SHORTEST = 8
# Secrets of a record whose copies are looked for.
_MOST_COPIED = 500
# Names in JSON from this length on may be secrets themselves.
_LONG_NAME = 16
_PRIVATE = re.compile(r"<private>.*?</private>", re.IGNORECASE | re.DOTALL)
_IN_ADDRESS = re.compile(r"://[^\s:/@]*:([^\s@]{4,})@")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_MARK_BEFORE_HOST = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)[^/]*\]@")
_ENDS = 2
_NAMES = "API AWS GCP JWT PAT PGP RSA SDK SSH URI URL GitHub GitLab OpenAI"
_CAPITALS = {word.lower(): word for word in _NAMES.split()}
_lock = Lock()


class Secret(NamedTuple):
    """A secret in a text: its kind in words, and where it is."""

    kind: str
    start: int
    end: int


def is_available() -> bool:
    """Whether secrets can be looked for on this machine."""
    return _is_available


def prepare_scanner() -> None:
    """Compile the rules, which takes ten seconds the first time on a machine."""
    if is_available():
        _scanner()


def find_secrets(text: str) -> list[Secret]:
    """The secrets of a text in order, none within another."""
    if len(text) < _SHORTEST:
        return []
    found = [Secret("private", *match.span()) for match in _PRIVATE.finditer(text)] if "<" in text else []
    if is_available():
        found += _scan(text)
    apart: list[Secret] = []
    for one in sorted(found, key=lambda one: (one.start, -one.end)):
        if apart and one.start < apart[-1].end:
            apart[-1] = apart[-1]._replace(end=max(one.end, apart[-1].end))
        else:
            apart.append(one)
    return apart


def mask_text(text: str, secrets: Iterable[Secret]) -> str:
    """The text with the kind of each secret, and its last characters, in its place."""
    parts, at = [], 0
    for one in secrets:
        parts += [text[at : one.start], mark_of(text, one)]
        at = one.end
    return "".join([*parts, text[at:]])


def mark_of(text: str, secret: Secret) -> str:
    """The words in place of a secret."""
    if secret.kind == "private":
        return "[private]"
    return f"[{secret.kind} …{text[secret.end - _ENDS : secret.end].strip()}]"


def mask_values(
    values: Mapping[str, Any], is_chosen: Callable[[str], bool] = lambda text: True
) -> tuple[dict[str, Any], list[str]]:
    """Values of JSON without the chosen secrets in their texts, and the marks in place of these.

    A value is looked at with its name before it: a password is known by that.
    """
    placed = _locate_secrets(values)
    marks: list[str] = []
    masked: list[str] = []
    for text, found in placed:
        inside = [one for one in found if is_chosen(text[one.start : one.end])]
        marks += [mark_of(text, one) for one in inside]
        masked.append(_mask_value(text, inside) if inside else text)
    return (_with_texts(values, iter(masked)) if marks else dict(values)), marks


def _mask_value(text: str, secrets: list[Secret]) -> str:
    masked = mask_text(text, secrets)
    # An address with a mark before its host could not be read as one.
    return _MARK_BEFORE_HOST.sub(r"\1", masked) if _ADDRESS.fullmatch(text) else masked


def secrets_in(values: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The secrets in the texts of values, as `mask_values` finds them: the kind, the mark and the secret itself."""
    return [
        (one.kind, mark_of(text, one), text[one.start : one.end])
        for text, found in _locate_secrets(values)
        for one in found
    ]


def _locate_secrets(values: Mapping[str, Any]) -> list[tuple[str, list[Secret]]]:
    """The texts of values in order, each with the secrets in it; nothing if none has any."""
    leaves = list(_leaves(values, ""))
    starts, parts, at = [], [], 0
    for name, text in leaves:
        head = f"{name}: "
        starts.append(at + len(head))
        parts.append(f"{head}{text}\n")
        at += len(parts[-1])
    secrets = find_secrets("".join(parts))
    if not secrets:
        return []
    placed = []
    for (name, text), start in zip(leaves, starts, strict=True):
        near = [one for one in secrets if one.end > start and one.start < start + len(text)]
        placed.append((text, _inside(name, text, start, near)))
    return _with_copies(placed)


def _with_copies(placed: list[tuple[str, list[Secret]]]) -> list[tuple[str, list[Secret]]]:
    """The texts with copies of secrets, known by what is around another one: such as a password that is a tag too."""
    kinds = {
        form.lower(): one.kind
        for text, found in placed
        for one in found
        for form in bare_forms(text[one.start : one.end])
        if is_unlike_words(form)
    }
    if not kinds:
        return placed
    # Each place of a text is compared with all of them: nobody's record has more secrets, but for one made to be slow.
    forms = sorted(islice(kinds, _MOST_COPIED), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, forms)), re.IGNORECASE)
    complete = []
    for text, found in placed:
        spans = [match for match in pattern.finditer(text) if all(_is_apart(match, one) for one in found)]
        more = [Secret(kinds[match[0].lower()], *match.span()) for match in spans]
        complete.append((text, sorted([*found, *more], key=lambda one: one.start)))
    return complete


def bare_forms(secret: str) -> list[str]:
    """A secret, and the part of it that stands alone elsewhere: without its signs, or the password of an address."""
    inner = secret.removeprefix("<private>").removesuffix("</private>").strip()
    return [secret, *([inner] if inner != secret else []), *_IN_ADDRESS.findall(secret)]


def _is_apart(match: "re.Match[str]", secret: Secret) -> bool:
    return match.end() <= secret.start or match.start() >= secret.end


def is_unlike_words(text: str) -> bool:
    """Whether a secret is masked wherever it is. A shorter one, or one of letters alone, may be a word elsewhere."""
    has_both = bool(re.search(r"\d", text)) and bool(re.search(r"[A-Za-z]", text))
    is_mixed = bool(re.search(r"[a-z].*[A-Z]", text, re.DOTALL)) and " " not in text
    return len(text) >= 2 * _SHORTEST or (len(text) >= _SHORTEST and (has_both or is_mixed))


def _inside(name: str, text: str, start: int, secrets: list[Secret]) -> list[Secret]:
    """The secrets in a text that begins at `start`. One that goes beyond it is none: the text is then read alone."""
    end = start + len(text)
    if any(one.start < start or one.end > end for one in secrets):
        start = len(f"{name}: ")
        alone = find_secrets(f"{name}: {text}")
        secrets = [one._replace(start=max(one.start, start)) for one in alone if one.end > start]
    return [one._replace(start=one.start - start, end=one.end - start) for one in secrets]


def _leaves(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """The texts in a value of JSON, with the names that they have."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            # Values that are not JSON yet may have numbers as names.
            if len(str(key)) >= _LONG_NAME:
                yield "", str(key)
            yield from _leaves(one, str(key))
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for one in value:
            yield from _leaves(one, name)


def _with_texts(value: Any, texts: Iterator[str]) -> Any:
    """The value with the next texts, in the order of `_leaves`."""
    if isinstance(value, str):
        return next(texts)
    if isinstance(value, Mapping):
        return {
            next(texts) if len(str(key)) >= _LONG_NAME else key: _with_texts(one, texts) for key, one in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return type(value)(_with_texts(one, texts) for one in value)  # type: ignore[call-arg]
    return value


def _scan(text: str) -> list[Secret]:
    data = text.encode("utf-8", "surrogatepass")
    found = []
    for finding in _scanner().scan(data):
        if finding.visible:
            place = finding.to_dict()["location"]
            # Places are those of bytes.
            start = len(data[: place["start_offset"]].decode("utf-8", "replace"))
            length = len(data[place["start_offset"] : place["end_offset"]].decode("utf-8", "replace"))
            found.append(Secret(_kind(finding.rule_id, finding.rule_name), start, start + length))
    return found


def _kind(rule_id: str, name: str) -> str:
    catalogue, _, word = rule_id.partition(".")
    words = name if catalogue == "mnemoscope" else word.replace("-", " ").replace("_", " ")
    return " ".join(_CAPITALS.get(one, one) for one in words.split())


def _scanner() -> Any:
    # Others wait until it is made.
    with _lock:
        return _make_scanner()


@cache
def _make_scanner() -> Any:
    from kingfisher_sdk import Rules, Scanner

    return Scanner(Rules([str(_RULES)]))
