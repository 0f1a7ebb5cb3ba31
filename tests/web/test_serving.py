"""The listening socket, and the address that commands find the server by."""

import asyncio
import socket

import pytest

from web import serving


def test_answer_in_two_packets_does_not_wait_for_the_client_to_acknowledge_the_first():
    listener = serving.listen("127.0.0.1", 0)

    async def delays_packets() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted = writer.get_extra_info("socket")
            found.set_result(not accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        async with await asyncio.start_server(answer, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            delays = await found
            writer.close()
            return delays

    assert not asyncio.run(delays_packets())


# --- commands next to a server ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "link", "is_local"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000/join/x/", True),
        ("localhost", "http://localhost/join/x/", True),
        ("[::1]:8000", "http://[::1]:8000/join/x/", True),
        ("memories.example", "http://memories.example/join/x/", False),
    ],
)
def test_link_to_give_away_is_that_of_the_request_unless_an_address_is_set(settings, rf, host, link, is_local):
    settings.ALLOWED_HOSTS = ["*"]
    request = rf.get("/people/", headers={"host": host})
    assert serving.public_address(request, "/join/x/") == link
    assert serving.is_for_this_machine(link) == is_local
    settings.PUBLIC_URL = "https://memories.example"
    assert serving.public_address(request, "/join/x/") == "https://memories.example/join/x/"


def test_address_of_a_server_that_was_killed_is_not_used(settings, tmp_path):
    settings.HOME = tmp_path
    assert serving.running_site() is None
    path = tmp_path / "address.1234"
    path.write_text("http://127.0.0.1:8000\n")
    assert serving.running_site() is None
    assert not path.exists()
