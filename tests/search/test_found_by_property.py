"""Words of aliases, own properties and columns find their memories, with every engine and by the same rule."""

import pytest

from access.viewer import command_viewer
from memories.models import Memory
from search.query import SearchQuery
from search.run import run
from tests.search.conftest import BOTH_ENGINES
from transfer.formats.registry import importer_for
from transfer.run import ImportChoices, import_path

pytestmark = BOTH_ENGINES

NOTE = "---\naliases: [Roggenbrot, Dark Loaf]\nbaked by: Annemarie\nweight: 750 g\n---\nBake it slowly."


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("roggenbrot", 1),
        ("dark loafs", 1),
        ('"dark loaf"', 1),
        ('"roggenbrot loaf"', 0),
        ("annemarie slowly", 1),
        ("Annemarie -slowly", 0),
        ("750", 1),
        ("cellar", 1),
        ("aliases", 0),
    ],
)
def test_properties_are_searched(corpus, everyone, tmp_path, text, count):
    note, table = tmp_path / "Rye.md", tmp_path / "t.csv"
    note.write_text(NOTE)
    table.write_text("Title,Text,Area\nShelf,Wood.,Cellar\n")
    for path, columns in ((note, {}), (table, {"Area": ""})):
        choices = ImportChoices("tea", columns=columns)
        import_path(path=path, importer=importer_for(path), viewer=command_viewer(), choices=choices)
    result = run(SearchQuery.from_mapping({"q": text, "mode": "keyword"}), everyone)

    assert (result.total, len(result.hits)) == (count, count)
    titles = dict(Memory.objects.values_list("pk", "title"))
    assert {titles[hit.id] for hit in result.hits} <= {"Rye", "Shelf"}
