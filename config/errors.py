"""The one shape of an error of the API, and what becomes of every exception on its way there."""

import difflib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any

import psycopg
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from ninja import Field, Schema
from ninja.errors import AuthenticationError, HttpError, ValidationError

from access.keys import MAKE_ONE, CrossSiteRefused, KeyRefused, ScopeMissing
from config.middleware import is_outage, outage_response
from memories.services import AlreadyExists, MemoryNotFound, NotAllowed
from search.query import Problem, QueryError

logger = logging.getLogger("mnemoscope.api")


class Error(Schema):
    """What every refusal of the API looks like."""

    error: str = Field(description="What kind of error, one word for programs.")
    detail: str = Field(description="What was wrong, for people; names every parameter at fault.")
    suggestion: str = Field(description="What to do about it, or empty.")
    did_you_mean: list[str] = Field(description="What may have been meant instead of a name that is not known.")


@dataclass(eq=False)
class Refusal(Exception):
    """An error of the API, ready to be sent."""

    status: int
    error: str
    detail: str
    suggestion: str = ""
    did_you_mean: tuple[str, ...] = ()
    headers: dict[str, str] = field(default_factory=dict)

    def response(self) -> HttpResponse:
        body = Error(
            error=self.error,
            detail=self.detail,
            suggestion=self.suggestion,
            did_you_mean=list(self.did_you_mean),
        )
        # A lone surrogate, echoed, cannot be encoded: JsonResponse writes ASCII, in which it is only an escape.
        return JsonResponse(body.model_dump(), status=self.status, headers=self.headers)


def errors(*statuses: int) -> dict[int, type[Schema]]:
    """The error responses of an operation, for its declaration. Any operation may meet the last two."""
    return dict.fromkeys((*statuses, 500, 503), Error)


# What an operation behind a key may answer.
GUARDED = (401, 403)


def answer(request: HttpRequest, error: Exception) -> HttpResponse:
    """The response for an exception, whatever it is."""
    if is_outage(error):
        logger.warning("%s %s: the database does not answer", request.method, request.path)
        return outage_response(request)
    return refusal_of(error).response()


def refusal_of_problems(problems: Iterable[Problem], error: str = "invalid_request") -> Refusal:
    """422, naming every parameter at fault."""
    problems = tuple(problems)
    return Refusal(
        422,
        error,
        "; ".join(str(problem) for problem in problems),
        "; ".join(dict.fromkeys(problem.suggestion for problem in problems if problem.suggestion)),
        tuple(dict.fromkeys(name for problem in problems for name in problem.did_you_mean)),
    )


def close_to(name: str, known: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """Known names that somebody who wrote this one may have meant."""
    return tuple(difflib.get_close_matches(name[:100], list(known), most))


@singledispatch
def refusal_of(error: Exception) -> Refusal:
    """What to tell about an exception. One that nobody foresaw is logged and tells nothing of itself."""
    logger.error("An unforeseen error in the API", exc_info=error)
    return Refusal(
        500,
        "internal_error",
        "Something went wrong here that should not have; it has been logged.",
        "Try again; if it stays, report it with the time and the request.",
    )


@refusal_of.register
def _(error: Refusal) -> Refusal:
    return error


@refusal_of.register
def _(error: QueryError) -> Refusal:
    return refusal_of_problems(error.problems, "invalid_query")


@refusal_of.register
def _(error: ValidationError) -> Refusal:
    return refusal_of_problems(_problem_of(item) for item in error.errors)


@refusal_of.register
def _(error: KeyRefused) -> Refusal:
    return _unauthorized(str(error))


@refusal_of.register
def _(error: AuthenticationError) -> Refusal:
    return _unauthorized("this needs a key, and there is none in the request")


@refusal_of.register
def _(error: ScopeMissing) -> Refusal:
    return Refusal(403, "forbidden", str(error), f"use another key, or {MAKE_ONE},write")


@refusal_of.register
def _(error: CrossSiteRefused) -> Refusal:
    return Refusal(
        403,
        "csrf_failed",
        "a change made with the cookie of a session needs its CSRF token",
        "send the token of the page in the header X-CSRFToken, or use a key",
    )


@refusal_of.register
def _(error: NotAllowed) -> Refusal:
    return Refusal(403, "forbidden", str(error), "use a key, or an account, that may write into this project")


@refusal_of.register
def _(error: MemoryNotFound) -> Refusal:
    return Refusal(404, "not_found", str(error), "search for it: GET /api/search?q=…")


@refusal_of.register
def _(error: AlreadyExists) -> Refusal:
    return Refusal(409, "already_exists", str(error), "change the one there is with PATCH")


@refusal_of.register
def _(error: Http404) -> Refusal:
    return Refusal(404, "not_found", "there is nothing at this address", "GET /api/docs lists the addresses")


@refusal_of.register
def _(error: HttpError) -> Refusal:
    # Ninja wraps whatever stopped it from reading a body.
    if isinstance(error.__cause__, Refusal):
        return error.__cause__
    return Refusal(error.status_code, "refused", str(error))


@refusal_of.register
def _(error: RequestDataTooBig) -> Refusal:
    return Refusal(413, "too_large", "the body is too large", "send less at a time, or use: manage.py import_memories")


@refusal_of.register
def _(error: SuspiciousOperation) -> Refusal:
    return Refusal(400, "malformed_request", str(error) or "the request cannot be read")


def _busy(error: Exception) -> Refusal:
    logger.error("The database gave a statement up", exc_info=error)
    return Refusal(
        503,
        "database_busy",
        "the database gave this request up",
        "try again in a moment, or ask for less at a time",
        headers={"Retry-After": "2"},
    )


def _problem_of(item: dict[str, Any]) -> Problem:
    """One of pydantic's complaints about a path, a query or a body, in words."""
    place = [str(part) for part in item["loc"]]
    # A body is one record: its fields are what the sender knows, not the name that our function gives it.
    name = ".".join(place[2:] if place[0] == "body" else place[1:]) or place[0]
    message = str(item["msg"]).removeprefix("Value error, ")
    return Problem(name, message[:1].lower() + message[1:])


# An outage never comes this far: what is left is a deadlock lost, or a statement out of time.
for _kind in (OperationalError, InterfaceError, psycopg.OperationalError):
    refusal_of.register(_kind, _busy)
