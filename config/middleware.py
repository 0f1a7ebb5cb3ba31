"""Request plumbing that belongs to no app: response headers, a database that is down, sign-in inside a fragment."""

from collections.abc import Callable

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

type_ = Callable[[HttpRequest], HttpResponse]

# No inline script, no other host: memory text is untrusted, and this is the wall behind the sanitiser.
CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'self'",
        "img-src 'self' data:",
        "style-src 'self' 'unsafe-inline'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)
