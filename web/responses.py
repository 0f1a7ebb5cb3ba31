"""The response of the API for any exception: refusals describe their own, and all others are translated here."""

import logging

import psycopg
import pydantic
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from ninja.errors import AuthenticationError, HttpError, ValidationError
from pydantic import BaseModel

from web.errors import FIELDS_LISTED, ApiError, Refusal, UnauthorizedError
from web.exchange import current_id, internal_error
from web.middleware import refusal_response
from web.outages import is_outage, outages, refusal_of_outage
from web.validation import problems_of, sentence

logger = logging.getLogger("mnemoscope.api")


def answer(request: HttpRequest, error: Exception | type[Exception]) -> HttpResponse:
    """The response for an exception, whatever it is."""
    raised = error if isinstance(error, Exception) else error()
    refusal = error_of(raised)
    if is_outage(raised):
        outages.log(refusal, raised)
        return refusal_response("/api/", refusal)
    return refusal.response()


def error_of(error: Exception) -> Refusal:
    """The refusal that an exception amounts to. An unforeseen one is logged, and its message is not shown."""
    match error:
        case Refusal():
            return error
        # Ninja wraps the errors of a body: its parser's, and ours in sentences instead of the inputs.
        case ValidationError() | HttpError() if isinstance(error.__cause__, Refusal):
            return error.__cause__
        case ValidationError():
            return _invalid([str(item) for item in error.errors])
        case AuthenticationError():
            return UnauthorizedError()
        case HttpError():
            return ApiError(error.status_code, "refused", str(error))
        case Http404():
            nothing = "Page not found."
            return ApiError(404, "not_found", nothing, "The addresses are listed at /api/docs.")
        case RequestDataTooBig():
            return ApiError(413, "too_large", "The body is too large.", "Send one memory at a time.")
        case SuspiciousOperation():
            return ApiError(400, "malformed_request", str(error) or "The request cannot be read.")
        case _ if is_outage(error):
            return refusal_of_outage(error)
        # Only a lost deadlock or a statement out of time is left.
        case OperationalError() | InterfaceError() | psycopg.OperationalError():
            return _busy(error)
    logger.error("An unforeseen error in the API", exc_info=error)
    told = internal_error(current_id())
    return ApiError(500, told.error, told.detail, told.suggestion)


def _busy(error: Exception) -> ApiError:
    logger.warning("The database cancelled a statement", exc_info=error)
    return ApiError(
        503,
        "database_busy",
        "The database cancelled this request.",
        "Try again in a moment, or request less at a time.",
        headers={"Retry-After": "2"},
    )


def error_of_input(error: pydantic.ValidationError, model: type[BaseModel], *, below: int) -> ApiError:
    """422 for an input that is readable and invalid, with a sentence for each invalid field.

    `below` is the number of steps of a field's place that the sender does not know.
    """
    problems = problems_of(error, model, below)
    meant = dict.fromkeys(near for problem in problems for near in problem.did_you_mean)
    return _invalid([sentence(problem) for problem in problems], tuple(meant))


def _invalid(sentences: list[str], meant: tuple[str, ...] = ()) -> ApiError:
    return ApiError(422, "invalid_request", "; ".join(sentences), FIELDS_LISTED, meant)
