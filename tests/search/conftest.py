import json

import pytest
from django.core.management import call_command

from access.viewer import command_viewer
from tests.corpus import RECORDS
from tests.oracle import load_documents


@pytest.fixture
def everyone():
    """A viewer who may see everything."""
    return command_viewer()


@pytest.fixture
def corpus(db, tmp_path):
    """The hand-written memories, brought in by the importer, as the oracle sees them."""
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    call_command("import_memories", str(path), verbosity=0)
    return load_documents()
