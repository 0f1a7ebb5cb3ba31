"""The readers and writers of the load benchmark, against a small server of this module."""

import asyncio
import json
import subprocess
import sys
import threading

import pytest

from lab.bench.load import lines

MEMORY = {
    "id": 7, "title": "Kettle descaled", "snippet": "with vinegar", "tags": ["kitchen"], "categories": ["home"],
}  # fmt: skip


class Server:
    """Answers searches, is busy for one kind of request, and hangs up on another."""

    async def serve(self, reader, writer):
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                length = next((int(line[15:]) for line in head.split("\r\n") if line.startswith("Content-Length")), 0)
                await reader.readexactly(length)
                path = head.split(" ")[1]
                if path.startswith("/api/timeline"):
                    break
                status, body = ("503 Busy", {"error": "busy"}) if "/categories" in path else ("200 OK", {})
                if path.startswith("/api/search"):
                    body = {"memories": [MEMORY]}
                content = json.dumps(body).encode()
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
        except asyncio.IncompleteReadError:
            pass
        writer.close()


@pytest.fixture
def url():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    starting = asyncio.start_server(Server().serve, "127.0.0.1", 0)
    server = asyncio.run_coroutine_threadsafe(starting, loop).result(10)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def test_answers_refusals_and_lost_connections_are_counted_apart(url):
    command = [sys.executable, "-m", "lab.bench.load_client", url, "key", "0.5", "--readers", "3", "--writers", "1"]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert set(found["outcomes"]) == {"200", "503 busy", "IncompleteReadError"}
    assert found["answers"] == found["outcomes"]["200"] == sum(kind["n"] for kind in found["kinds"].values())
    assert found["refusals"]["n"] == found["outcomes"]["503 busy"]
    assert "page" not in found["kinds"]  # without a session


def test_table_has_a_row_for_each_number_of_processes():
    latency = {"n": 2, "p50_ms": 1.0, "p95_ms": 2.0, "p99_ms": 3.0, "max_ms": 4.0}
    run = {
        "workers": 2, "answers_per_second": 90.0, "outcomes": {"200": 2}, "latency": latency,
        "kinds": {"page": latency}, "processes": [{"process": "up", "resident_mb": 200, "proportional_mb": 150}],
    }  # fmt: skip
    text = "\n".join(lines("21000", {"runs": [run]}))
    assert "2 × 200" in text
    assert "2: together" in text
