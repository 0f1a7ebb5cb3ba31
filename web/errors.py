"""The one shape of an error of the API, and what becomes of every exception on its way there."""

import difflib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import singledispatch

import psycopg
import pydantic
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from ninja.errors import AuthenticationError, HttpError, ValidationError
from pydantic import BaseModel, Field
from pydantic_core import InitErrorDetails, PydanticCustomError

from access.keys import MAKE_ONE, CrossSiteError, KeyRefusedError, ScopeMissingError, TooManyRequestsError
from explorer.visible_tree import CategoryNotFoundError
from memories.reasons import field_names, reasons
from memories.services import AlreadyExistsError, ChangeRefusedError, MemoryNotFoundError, NotAllowedError
from search.query import Problem, QueryError
from web.middleware import is_outage, outage_response

logger = logging.getLogger("mnemoscope.api")


class Error(BaseModel):
    """What every refusal of the API looks like."""

    error: str = Field(description="What kind of error, one word for programs.")
    detail: str = Field(description="A message for people; names every invalid parameter.")
    suggestion: str = Field(description="What to do about it, or empty.")
    did_you_mean: list[str] = Field(description="What may have been meant instead of a name that is not known.")


@dataclass(eq=False)
class ApiError(Exception):
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


def errors(*statuses: int) -> dict[int, type[BaseModel]]:
    """The error responses of an operation, for its declaration. Any operation may meet the last two."""
    return dict.fromkeys((*statuses, 500, 503), Error)


# What an operation behind a key may answer.
GUARDED = (401, 403, 429)


def answer(request: HttpRequest, error: Exception | type[Exception]) -> HttpResponse:
    """The response for an exception, whatever it is."""
    raised = error if isinstance(error, Exception) else error()
    if is_outage(raised):
        logger.warning("%s %s: the database does not answer", request.method, request.path)
        return outage_response(request)
    return error_of(raised).response()


def error_of_problems(problems: Iterable[Problem]) -> ApiError:
    """422, naming every parameter at fault."""
    problems = tuple(problems)
    return ApiError(
        422,
        "invalid_query",
        "; ".join(str(problem) for problem in problems),
        "; ".join(dict.fromkeys(problem.suggestion for problem in problems if problem.suggestion)),
        tuple(dict.fromkeys(name for problem in problems for name in problem.did_you_mean)),
    )


def close_to(name: str, known: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """Known names that somebody who wrote this one may have meant."""
    return tuple(difflib.get_close_matches(name[:100], list(known), most))


@singledispatch
def error_of(error: Exception) -> ApiError:
    """What to tell about an exception. One that nobody foresaw is logged and tells nothing of itself."""
    logger.error("An unforeseen error in the API", exc_info=error)
    return ApiError(
        500,
        "internal_error",
        "Internal error. It has been logged.",
        "Try again. If it persists, report it with the time and the request.",
    )


@error_of.register
def _(error: ApiError) -> ApiError:
    return error


@error_of.register
def _(error: QueryError) -> ApiError:
    return error_of_problems(error.problems)


@error_of.register
def _(error: ValidationError) -> ApiError:
    # Ninja's own list has the inputs taken out; the sentences about them came along as the cause.
    return error.__cause__ if isinstance(error.__cause__, ApiError) else _invalid([str(item) for item in error.errors])


@error_of.register
def _(error: KeyRefusedError) -> ApiError:
    return _unauthorized(str(error))


@error_of.register
def _(error: TooManyRequestsError) -> ApiError:
    return ApiError(
        429,
        "too_many_requests",
        str(error),
        f"Wait {error.seconds} seconds, or request more at a time.",
        headers={"Retry-After": str(error.seconds)},
    )


@error_of.register
def _(error: AuthenticationError) -> ApiError:
    return _unauthorized("This needs a key; the request has none.")


@error_of.register
def _(error: ScopeMissingError) -> ApiError:
    return ApiError(403, "forbidden", str(error), "Use another key: list_api_keys shows the scopes of each.")


@error_of.register
def _(error: CrossSiteError) -> ApiError:
    return ApiError(
        403,
        "csrf_failed",
        "A change made with a session cookie needs the CSRF token of a page.",
        "Send the token in the header X-CSRFToken, or use a key.",
    )


@error_of.register
def _(error: NotAllowedError) -> ApiError:
    return ApiError(403, "forbidden", str(error), "Use a key or an account that can write to this project.")


@error_of.register
def _(error: MemoryNotFoundError) -> ApiError:
    return ApiError(404, "not_found", str(error), "Look for it: GET /api/search?q=…")


@error_of.register
def _(error: CategoryNotFoundError) -> ApiError:
    return ApiError(404, "not_found", str(error), "See what there is: GET /api/categories", error.did_you_mean)


@error_of.register
def _(error: AlreadyExistsError) -> ApiError:
    address = f"/api/memories/{error.memory_id}"
    return ApiError(
        409, "already_exists", str(error), f"Change the existing memory: PATCH {address}", headers={"Location": address}
    )


@error_of.register
def _(error: ChangeRefusedError) -> ApiError:
    return _invalid([str(error)])


@error_of.register
def _(error: Http404) -> ApiError:
    return ApiError(404, "not_found", "Page not found.", "The addresses are listed at /api/docs.")


@error_of.register
def _(error: HttpError) -> ApiError:
    # Ninja wraps whatever stopped it from reading a body.
    if isinstance(error.__cause__, ApiError):
        return error.__cause__
    return ApiError(error.status_code, "refused", str(error))


@error_of.register
def _(error: RequestDataTooBig) -> ApiError:
    return ApiError(413, "too_large", "The body is too large.", "Send one memory at a time.")


@error_of.register
def _(error: SuspiciousOperation) -> ApiError:
    return ApiError(400, "malformed_request", str(error) or "The request cannot be read.")


def _unauthorized(detail: str) -> ApiError:
    return ApiError(
        401,
        "unauthorized",
        detail,
        f"Send a key as Authorization: Bearer mnk_… ({MAKE_ONE})",
        headers={"WWW-Authenticate": "Bearer"},
    )


def _busy(error: Exception) -> ApiError:
    logger.error("The database cancelled a statement", exc_info=error)
    return ApiError(
        503,
        "database_busy",
        "The database cancelled this request.",
        "Try again in a moment, or request less at a time.",
        headers={"Retry-After": "2"},
    )


def error_of_input(error: pydantic.ValidationError, model: type[BaseModel], *, below: int) -> ApiError:
    """422 for an input that was read and is not what it should be: a sentence for every field at fault.

    `below` is how many steps of a field's place are our own names.
    """
    details = error.errors(include_url=False, include_context=True)
    unknown = [str(detail["loc"][-1]) for detail in details if detail["type"] == "extra_forbidden"]
    meant = dict.fromkeys(near for name in unknown for near in close_to(name, field_names(model), 1))
    return _invalid(reasons(_placed(error, below), model), tuple(meant))


def _placed(error: pydantic.ValidationError, below: int) -> pydantic.ValidationError:
    """The same errors at the places that the sender knows."""
    lines = [
        InitErrorDetails(
            type=PydanticCustomError(detail["type"], "{message}", {"message": detail["msg"], **detail.get("ctx", {})}),
            loc=detail["loc"][below:],
            input=detail["input"],
        )
        for detail in error.errors(include_url=False)
    ]
    return pydantic.ValidationError.from_exception_data(error.title, lines)


def _invalid(sentences: list[str], meant: tuple[str, ...] = ()) -> ApiError:
    return ApiError(422, "invalid_request", "; ".join(sentences), "The fields are listed at /api/docs.", meant)


# An outage never comes this far: what is left is a deadlock lost, or a statement out of time.
for _kind in (OperationalError, InterfaceError, psycopg.OperationalError):
    error_of.register(_kind, _busy)
