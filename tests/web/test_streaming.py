"""Responses that are made while they are sent."""

import asyncio
import threading

import pytest
from django.http import StreamingHttpResponse
from django.urls import path

from tests.web.applications import ask
from web.handler import SiteHandler

pytestmark = pytest.mark.urls(__name__)


class Source:
    """A view that streams numbers, and remembers the threads that made them and whether it was closed."""

    def __init__(self):
        self.made, self.threads, self.closed = 0, set(), threading.Event()

    def __call__(self, request):
        return StreamingHttpResponse(self.pieces(), content_type="text/plain")

    def pieces(self):
        try:
            for number in range(1_000):
                self.made += 1
                self.threads.add(threading.get_ident())
                yield f"{number}\n".encode()
        finally:
            self.threads.add(threading.get_ident())
            self.closed.set()


source = Source()
urlpatterns = [path("numbers/", lambda request: source(request))]


@pytest.fixture(autouse=True)
def new_source():
    global source
    source = Source()


def test_all_pieces_are_made_in_one_thread():
    answer = asyncio.run(ask(SiteHandler(), "/numbers/"))
    assert answer.body.split() == [str(number).encode() for number in range(1_000)]
    assert source.closed.wait(20)
    assert len(source.threads) == 1


def test_stream_ends_when_the_client_has_hung_up():
    async def asked_and_gone():
        gone = asyncio.Event()
        asyncio.get_running_loop().call_soon(gone.set)
        return await ask(SiteHandler(), "/numbers/", gone=gone)

    asyncio.run(asked_and_gone())
    assert source.made < 1_000
