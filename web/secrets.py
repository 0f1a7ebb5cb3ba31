"""Secrets in texts that are stored or logged, such as names and reasons: masked, refused or left, as `SECRETS` says."""

from collections.abc import Callable, Collection, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.conf import settings

from text.secrets import find_secrets, mask_text, mask_values

MASK, REFUSE, OFF = "mask", "refuse", "off"
_MARKS_NAMED = 5


def refusal_of(marks: Collection[str]) -> str:
    """Why something is refused for its secrets."""
    named = ", ".join(list(dict.fromkeys(marks))[:_MARKS_NAMED])
    return f"holds secrets, which are not stored here: {named}. Take them out, or say where they are kept instead"


def mask_note(text: str) -> str:
    """A reason, or another text beside a memory, without secrets."""
    return mask_text(text, find_secrets(text)) if text and settings.SECRETS != OFF else text


def mask_json(values: dict[str, Any] | None) -> dict[str, Any] | None:
    """Values of a record about a change, without secrets."""
    return mask_values(values)[0] if values and settings.SECRETS != OFF else values


def mask_query(text: str) -> str:
    """A query string without secrets in its values, which are escaped there."""
    pairs = parse_qsl(text, keep_blank_values=True)
    masked = [(name, mask_note(value)) for name, value in pairs]
    return text if masked == pairs else urlencode(masked)


def texts_to_store(values: Mapping[str, Any], refusal: Callable[[str, str], Exception]) -> dict[str, Any]:
    """Texts that somebody gives, by field, without secrets. If these are refused, raises what `refusal` makes of the
    field and the reason.
    """
    if settings.SECRETS == OFF:
        return dict(values)
    masked, marks = mask_values(values)
    if marks and settings.SECRETS == REFUSE:
        raise refusal(next(name for name in values if masked[name] != values[name]), refusal_of(marks))
    return masked
