"""Declares operations of the API that read."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ninja import Router
from pydantic import BaseModel

from web.errors import GUARDED, errors

Operation = TypeVar("Operation", bound=Callable[..., Any])


def read_operation(
    router: Router,
    path: str,
    operation_id: str,
    reply: type[BaseModel],
    *refusals: int,
    parameters: Sequence[dict[str, Any]] = (),
    exclude_unset: bool = False,
    may_be_text: bool = False,
) -> Callable[[Operation], Operation]:
    """Register a GET operation. `refusals` are its status codes besides those of every guarded operation and 422.

    With `may_be_text`, it may also answer in plain text.
    """
    extra: dict[str, Any] = {"parameters": list(parameters)} if parameters else {}
    if may_be_text:
        extra["responses"] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
    return router.get(
        path,
        response={200: reply, **errors(*GUARDED, *refusals, 422)},
        operation_id=operation_id,
        exclude_unset=exclude_unset,
        openapi_extra=extra or None,
    )
