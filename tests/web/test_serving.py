"""The listening socket that several web processes share."""

import socket

import pytest

from web import serving


def test_process_with_connections_leaves_a_new_one_to_others_for_a_moment(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("web.serving.time.monotonic", lambda: now[0])
    with serving.shared(serving.listen("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        listener.connections = lambda: 0
        with socket.create_connection(address):
            listener.accept()[0].close()
        listener.connections = lambda: 4
        with socket.create_connection(address):
            for _ in range(2):
                with pytest.raises(BlockingIOError):
                    listener.accept()
            now[0] += 0.001
            listener.accept()[0].close()
        # The next connection waits again.
        with socket.create_connection(address), pytest.raises(BlockingIOError):
            listener.accept()
