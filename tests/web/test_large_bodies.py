"""Bodies that are too large, refused before Django writes them to the disk."""

import asyncio
import json

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.urls import reverse

from tests.web.applications import ask
from web.handler import UPLOAD_FORM, SiteHandler, is_signed_in

PIECE = b"x" * 1024**2


@pytest.mark.parametrize("path", ["/", "/sign-in/", "/imports/", "/static/css/site.css", UPLOAD_FORM])
def test_body_of_more_than_ten_megabytes_is_refused_on_every_page_to_strangers(path):
    refused = asyncio.run(ask(SiteHandler(), path, "POST", body=[PIECE] * 11))
    assert (refused.status, refused.headers["connection"]) == (413, "close")
    assert "The body is too large." in refused.text
    assert "Content-Security-Policy".lower() in refused.headers


def test_refusal_of_the_api_has_its_shape():
    refused = asyncio.run(ask(SiteHandler(), "/api/memories", "POST", body=[PIECE] * 11))
    assert refused.status == 413
    assert json.loads(refused.text) == {
        "error": "too_large",
        "detail": "The body is too large.",
        "suggestion": "Send less at a time.",
        "did_you_mean": [],
    }


@pytest.mark.django_db(transaction=True)
def test_who_is_signed_in_may_send_a_file_to_the_form_for_it(client):
    assert reverse("imports:upload") == UPLOAD_FORM
    client.force_login(User.objects.create_user("ada"))
    cookie = f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}".encode()
    assert is_signed_in([(b"host", b"localhost"), (b"cookie", b"theme=dark; " + cookie)])
    assert not is_signed_in([(b"cookie", cookie + b"x")])
    assert not is_signed_in([])
    headers = [(b"host", b"localhost"), (b"cookie", cookie)]
    answer = asyncio.run(ask(SiteHandler(), UPLOAD_FORM, "POST", body=[PIECE] * 11, headers=headers))
    assert answer.status == 403  # it has no token of a form
