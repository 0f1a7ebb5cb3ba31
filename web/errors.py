"""Errors: the exceptions that describe their own response, and the one shape of an error of the API.

Imports no app: an app's exceptions inherit from `Refusal` where they are defined.
"""

import difflib
from collections.abc import Iterable, Mapping

from django.http import HttpResponse, JsonResponse
from pydantic import BaseModel, Field

from web.command_line import command

MAKE_KEY = f"make one with: {command('create_api_key NAME --scopes read')}"
FIELDS_LISTED = "The fields are listed at /api/docs."


class Error(BaseModel):
    """The body of every error of the API."""

    error: str = Field(description="What kind of error, one word for programs.")
    detail: str = Field(description="A message for people; names every invalid parameter.")
    suggestion: str = Field(description="What to do about it, or empty.")
    did_you_mean: list[str] = Field(description="What may have been meant instead of a name that is not known.")


class Refusal(Exception):  # noqa: N818 - the base of errors, whose own names end so
    """A request that is refused. A subclass sets the status, the code for programs and the suggestion of its response.

    The message is shown to people, on a page of its own below the title.
    """

    status: int = 422
    code: str = "invalid_request"
    title: str = "This request is refused"
    message: str = ""
    suggestion: str = ""
    did_you_mean: tuple[str, ...] = ()
    headers: Mapping[str, str] = {}

    def __init__(self, message: str = "") -> None:
        super().__init__(message or self.message)

    @property
    def detail(self) -> str:
        return str(self)

    @property
    def explanation(self) -> str:
        """The detail and the suggestion as sentences, for interfaces that show a text alone."""
        return sentences(self.detail, self.suggestion)

    @property
    def body(self) -> Error:
        return Error(
            error=self.code, detail=self.detail, suggestion=self.suggestion, did_you_mean=list(self.did_you_mean)
        )

    def response(self) -> HttpResponse:
        # A lone surrogate, echoed, cannot be encoded: JsonResponse writes ASCII, in which it is only an escape.
        return JsonResponse(self.body.model_dump(), status=self.status, headers=dict(self.headers))


def sentences(detail: str, suggestion: str) -> str:
    """Two texts that may lack their stops, one after the other."""
    stop = "" if detail.endswith((".", "?", "!")) else "."
    return f"{detail}{stop} {suggestion}".strip()


class ApiError(Refusal):
    """A refusal of the API for a reason that needs no exception of its own."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        suggestion: str = "",
        did_you_mean: tuple[str, ...] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.suggestion, self.did_you_mean = status, code, suggestion, did_you_mean
        self.headers = headers or {}


class UnauthorizedError(Refusal):
    """A request without a valid key."""

    status = 401
    code = "unauthorized"
    message = "This needs a key; the request has none."
    suggestion = f"Send a key as Authorization: Bearer mnk_… ({MAKE_KEY})"
    headers = {"WWW-Authenticate": "Bearer"}


def errors(*statuses: int) -> dict[int, type[BaseModel]]:
    """The error responses of an operation, for its declaration. Any operation may meet the last two."""
    return dict.fromkeys((*statuses, 500, 503), Error)


# The errors of every operation that takes a key.
GUARDED = (401, 403, 429)


def close_to(name: str, known: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """Known names that somebody who wrote this one may have meant."""
    return tuple(difflib.get_close_matches(name[:100], list(known), most))
