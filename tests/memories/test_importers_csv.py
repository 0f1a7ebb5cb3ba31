import pytest

from tests.memories.foreign import found
from transfer.formats.base import Column, ColumnsError, ImportFailedError, NotReadableError, Options
from transfer.formats.csv_table import IMPORTER
from transfer.formats.registry import importer_for

TABLE = 'Date,Note,Labels,URL,Rating\n2024-05-06,"Rinse, then\nsteep.",tea; green,https://x.example,5\n'
TABS = 'Date\tNote\tLabels\tURL\tRating\n2024-05-06\t"Rinse, then\nsteep."\ttea; green\thttps://x.example\t5'


def written(tmp_path, data):
    path = tmp_path / "table"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(TABLE, id="commas"),
        pytest.param(TABLE.encode("utf-8-sig").replace(b"\n2", b"\r\n2"), id="byte order mark"),
        pytest.param(TABLE.encode("utf-16"), id="UTF-16"),
        pytest.param(
            'Date\tNote\tLabels\tURL\tRating\n2024-05-06\t"Rinse, then\nsteep."\ttea; green\thttps://x.example\t5',
            id="tabs",
        ),
    ],
)
def test_columns_are_matched_by_their_names_and_the_match_is_shown(tmp_path, data):
    (one,) = found(written(tmp_path, data), "csv")
    assert one.data == {
        "source": "csv",
        "content": "Rinse, then\nsteep.",
        "tags": ["tea", "green"],
        "source_url": "https://x.example",
        "created_at": "2024-05-06",
    }
    assert one.raw == {"Date": "2024-05-06", "Labels": "tea; green", "URL": "https://x.example", "Rating": "5"}
    assert one.notes == (
        "column 'Date' is read as created_at",
        "column 'Note' is read as content",
        "column 'Labels' is read as tags",
        "column 'URL' is read as source_url",
        "column 'Rating' is stored as it is, as a property",
    )


def test_rows_that_do_not_fit_are_refused_and_the_next_one_read(tmp_path):
    first, refused, last = found(written(tmp_path, "id,text\n1,a\n2,b,c\n\n3,d\n"), "csv")
    assert (first.data["id"], last.data["id"]) == ("1", "3")
    assert (refused.location, refused.reason) == ("line 3", "has 3 cells, and the table 2 columns")


def test_a_table_without_a_column_for_the_text_is_no_table_of_memories(tmp_path):
    with pytest.raises(NotReadableError, match="nothing that can be imported"):
        importer_for(written(tmp_path, "a,b\n1,2\n"))


def test_a_table_in_another_encoding_writes_nothing(tmp_path):
    with pytest.raises(ImportFailedError, match=r"is not UTF-8 \(byte 0xe9 after line 1\)"):
        found(written(tmp_path, b"id,text\n1,caf\xe9\n"), "csv")


def test_columns_are_read_as_somebody_wants_and_the_others_as_guessed(tmp_path):
    path = written(tmp_path, TABLE)
    wanted = {"URL": "content", "Rating": "tags", "Labels": "tags", "Date": ""}
    assert IMPORTER.columns(path, Options(columns=wanted)) == [
        Column("Date", "", ("2024-05-06",)),
        Column("Note", "", ("Rinse, then steep.",)),
        Column("Labels", "tags", ("tea; green",)),
        Column("URL", "content", ("https://x.example",)),
        Column("Rating", "tags", ("5",)),
    ]
    (one,) = IMPORTER.read(path, Options(columns=wanted)).records
    assert one.data == {"source": "csv", "content": "https://x.example", "tags": ["tea", "green", "5"]}
    assert one.raw["Note"] == "Rinse, then\nsteep."


def test_a_table_by_its_name_is_read_once_its_text_is_chosen(tmp_path):
    path = tmp_path / "lijst.csv"
    path.write_text("Nummer;Kommentaar\n1;Tee\n")
    assert importer_for(path) is IMPORTER
    with pytest.raises(ColumnsError, match="Choose one of 'Nummer', 'Kommentaar' as content"):
        IMPORTER.read(path, Options())
    (one,) = IMPORTER.read(path, Options(columns={"Kommentaar": "content"})).records
    assert one.data == {"source": "csv", "content": "Tee"}
