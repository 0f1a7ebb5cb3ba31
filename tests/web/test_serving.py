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
    assert (serving.reach_of(link) is serving.Reach.MACHINE) == is_local
    settings.PUBLIC_URL = "https://memories.example"
    assert serving.public_address(request, "/join/x/") == "https://memories.example/join/x/"


@pytest.mark.parametrize(
    ("address", "reach"),
    [
        ("http://127.0.0.1:8000", "MACHINE"),
        ("http://127.3.2.1", "MACHINE"),
        ("https://tea.localhost", "MACHINE"),
        ("http://[::1]:8000", "MACHINE"),
        ("http://0.0.0.0:8000", "MACHINE"),
        ("http://192.168.1.20:8000", "NETWORK"),
        ("http://10.0.0.3", "NETWORK"),
        ("http://[fd00::1]:8000", "NETWORK"),
        ("http://169.254.1.1", "NETWORK"),
        ("http://100.64.0.1", "NETWORK"),
        ("http://nas:8000", "NETWORK"),
        ("https://memories.local", "NETWORK"),
        ("https://tea.home.arpa.", "NETWORK"),
        ("https://memories.example", "ANYWHERE"),
        ("https://8.8.8.8", "ANYWHERE"),
        ("https://[2606:4700::1111]", "ANYWHERE"),
        ("", "NETWORK"),
    ],
)
def test_an_address_shows_which_machines_can_open_it(address, reach):
    assert serving.reach_of(address).name == reach


def test_address_of_a_server_that_was_killed_is_not_used(settings, tmp_path):
    settings.HOME = tmp_path
    assert serving.running_site() is None
    path = tmp_path / "address.1234"
    path.write_text("http://127.0.0.1:8000\n")
    assert serving.running_site() is None
    assert not path.exists()
