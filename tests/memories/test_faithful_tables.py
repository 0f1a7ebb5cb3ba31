"""Tables: dates by the order of their whole column, states, values of all rows, and fields by any of their names."""

import pytest

from memories.dates import AmbiguousDateError, read_moment
from tests.memories.foreign import found
from transfer.blocks import validate_source
from transfer.formats.base import ColumnsError, Options
from transfer.formats.choices import check_choices, with_values
from transfer.formats.csv_table import FIELDS, IMPORTER, field_named
from transfer.formats.registry import importer_for


def rows_of(tmp_path, text, **options):
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    return list(IMPORTER.read(path, Options(**options)).records)


def days_of(tmp_path, cells, **options):
    lines = "".join(f'"{cell}",Note {at}\n' for at, cell in enumerate(cells))
    records = [validate_source(one).record for one in rows_of(tmp_path, f"When,Text\n{lines}", **options)]
    return [one.created_at.date().isoformat() if one.created_at else "" for one in records]


WHEN = {"columns": {"When": "date"}}


@pytest.mark.parametrize(
    ("cells", "days"),
    [
        pytest.param(["03/04/2026", "13/12/2025"], ["2026-04-03", "2025-12-13"], id="days first"),
        pytest.param(["03/04/2026", "12/13/2025"], ["2026-03-04", "2025-12-13"], id="months first"),
        pytest.param(["03-04-26", "25-12-25"], ["2026-04-03", "2025-12-25"], id="short years"),
        pytest.param(["01.12.2025", "2.3.2026"], ["2025-12-01", "2026-03-02"], id="dots"),
        pytest.param(["12.31.2025", "01.02.2026"], ["2025-12-31", "2026-01-02"], id="dots with months first"),
        pytest.param(["1/2/2026 14:30", "2/13/2026 9:05 AM"], ["2026-01-02", "2026-02-13"], id="with times"),
        pytest.param(["1 Dec 2025", "December 1, 2025"], ["2025-12-01"] * 2, id="English"),
        pytest.param(["1. Dezember 2025", "3 Mrz 2026"], ["2025-12-01", "2026-03-03"], id="German"),
        pytest.param(["1er décembre 2025", "3 févr. 2026"], ["2025-12-01", "2026-02-03"], id="French"),
        pytest.param(["1 de diciembre de 2025", "3 ene 2026"], ["2025-12-01", "2026-01-03"], id="Spanish"),
        pytest.param(["1 dicembre 2025", "3 gen 2026"], ["2025-12-01", "2026-01-03"], id="Italian"),
        pytest.param(["1 de dezembro de 2025", "3 fev 2026"], ["2025-12-01", "2026-02-03"], id="Portuguese"),
        pytest.param(["1 december 2025", "3 mrt 2026"], ["2025-12-01", "2026-03-03"], id="Dutch"),
        pytest.param(["46000", "45999.5"], ["2025-12-09", "2025-12-08"], id="days of a spreadsheet"),
        pytest.param(["1764547200", "1764547200000"], ["2025-12-01"] * 2, id="seconds and milliseconds"),
        pytest.param(["2025-12-01", "2025/12/01", "20251201"], ["2025-12-01"] * 3, id="years first"),
        pytest.param(["2016-12-31T23:59:60Z"], ["2016-12-31"], id="a leap second"),
        pytest.param(
            ["Mon, 01 Dec 2025 10:00:00 GMT", "Dec 2025", "2025"], ["2025-12-01"] * 2 + ["2025-01-01"], id="mixed"
        ),
    ],
)
def test_dates_are_read_by_their_whole_column(tmp_path, cells, days):
    assert days_of(tmp_path, cells, **WHEN) == days


@pytest.mark.parametrize(
    ("columns", "cells", "day"),
    [
        pytest.param("Title,Decided on,Text", "A,01.12.2025,Tea", "2025-12-01", id="a name of its own"),
        pytest.param("Titel,Datum,Text", "A,1. Dezember 2025,Tee", "2025-12-01", id="in German"),
        pytest.param("Quién,Cuándo,Text", "Ana,1 de diciembre de 2025,Té", "2025-12-01", id="in Spanish"),
        pytest.param("Due,Noted,Text", "2027-01-01,2025-12-01,Tea", "2025-12-01", id="not one to come"),
        pytest.param("Next review,Version,Text", "2027-01-01,1.2.3,Tea", "", id="none"),
        pytest.param("Price,Room,Text", "12.50,2025,Tea", "", id="numbers"),
        pytest.param("Decided on,created,Text", "2024-01-01,2025-12-01,Tea", "2025-12-01", id="the known name first"),
    ],
)
def test_a_column_of_dates_is_the_date_where_no_column_has_its_name(tmp_path, columns, cells, day):
    (one,) = rows_of(tmp_path, f"{columns}\n{cells}\n")
    created = validate_source(one).record.created_at
    assert (created.date().isoformat() if created else "") == day


def test_a_column_that_is_to_be_stored_as_it_is_is_no_date(tmp_path):
    (one,) = rows_of(tmp_path, "Decided on,Text\n01.12.2025,Tea\n", columns={"Decided on": ""})
    assert "created_at" not in one.data


@pytest.mark.parametrize("further", [[], ["13/12/2025", "12/13/2025"]])
def test_an_order_that_no_row_shows_is_asked_for(tmp_path, further):
    cells = ["03/04/2026", "05/06/2026", *further]
    with pytest.raises(ColumnsError, match=r"column 'When' has dates such as 03/04/2026.*--dates day-first"):
        days_of(tmp_path, cells, **WHEN)
    assert days_of(tmp_path, cells, dates="day-first", **WHEN)[:2] == ["2026-04-03", "2026-06-05"]
    assert days_of(tmp_path, cells, dates="month-first", **WHEN)[:2] == ["2026-03-04", "2026-05-06"]
    (when, _) = IMPORTER.columns(tmp_path / "table.csv", Options(**WHEN))
    assert (when.dates, when.question) == ("", "03/04/2026")


@pytest.mark.parametrize(
    ("cells", "noted"),
    [
        (["2026-01-02", "soon"], "column 'When': 'soon' is not a date; it is left out. Write one such as 2026-08-05"),
        (["13/12/2025", "99/1/2026"], "column 'When': '99/1/2026' is not a date; it is left out."),
        (["2026-02-30", "1/2/2026", "30/1/2026"], "column 'When': '2026-02-30' is not a date"),
    ],
)
def test_a_date_that_is_none_is_noted_with_its_column(tmp_path, cells, noted):
    lines = "".join(f"{cell},Note\n" for cell in cells)
    notes = [note for one in rows_of(tmp_path, f"When,Text\n{lines}", **WHEN) for note in one.notes]
    assert [note for note in notes if note.startswith(noted)]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-02 14:30", "2026-03-02T14:30:00+00:00"),
        ("Thu Jan 02 2025 10:11:12 GMT+0100 (CET)", "2025-01-02T10:11:12+01:00"),
        ("3. März 2026 um 14:30 Uhr", "2026-03-03T14:30:00+00:00"),
        ("2026年3月2日", "2026-03-02T00:00:00+00:00"),
        ("3 августа 2024", "2024-08-03T00:00:00+00:00"),
        ("8/25/24, 3:14 PM", "2024-08-25T15:14:00+00:00"),
        ("March 5, 2026 12:30 PM", "2026-03-05T12:30:00+00:00"),
        ("March 5, 2026 12:30 am", "2026-03-05T00:30:00+00:00"),
        ("March 5, 2026 10:00 -05:00", "2026-03-05T10:00:00-05:00"),
        ("2026/20/03", "2026-03-20T00:00:00+00:00"),
        ("25.3.98", "1998-03-25T00:00:00+00:00"),
        ("25.3.26", "2026-03-25T00:00:00+00:00"),
        ("2026-03", "2026-03-01T00:00:00+00:00"),
        ("2026-13", ""),
        ("12:30 AM", ""),
        ("99/99/2020", ""),
        ("5.2024", "2024-05-01T00:00:00+00:00"),
        ("3.14", ""),
        ("mon", ""),
        ("1 Dec 2025 3 Jan 2026", ""),
        ("May be 5 2024", ""),
    ],
)
def test_single_dates(text, moment):
    try:
        read = read_moment(text).isoformat()
    except AmbiguousDateError:
        raise
    except ValueError:
        read = ""
    assert read == moment


DECISIONS = """ID;Title;Decision;Status;Date;Owner
D-1;Database;Use MySQL;superseded by D-2;01.12.2024;Ann
D-2;Database again;Use Postgres;Accepted;13.01.2025;Ann, Bob
D-3;Cache;Use Redis;Rejected;2. März 2025;Cem
D-4;Queue;Use none;Perhaps;;
"""


def test_a_table_of_decisions_is_one(tmp_path):
    path = tmp_path / "decisions.csv"
    path.write_text(DECISIONS)
    records = found(path, "csv", **check_choices({"types": "decision"}, {}, ""))
    read = [validate_source(one) for one in with_values(iter_of(records), {"type": "decision"})]
    assert [(one.record.id, one.record.type, one.record.state) for one in read] == [
        ("D-1", "decision", "superseded"),
        ("D-2", "decision", "active"),
        ("D-3", "decision", "archived"),
        ("D-4", "decision", None),
    ]
    assert read[0].record.superseded_by == "D-2"
    assert read[1].record.authors == ("Ann", "Bob")
    assert [one.record.created_at and one.record.created_at.date().isoformat() for one in read] == [
        *("2024-12-01", "2025-01-13", "2025-03-02"),
        None,
    ]
    assert read[3].found.notes[-1].startswith("column 'Status': 'Perhaps' is no known state; it is left out.")


def iter_of(records):
    yield from records


def test_a_value_of_all_rows_gives_way_to_that_of_a_row(tmp_path):
    rows = rows_of(tmp_path, "text,type\na,\nb,idea\n")
    assert [one.data["type"] for one in with_values(iter_of(rows), {"type": "decision"})] == ["decision", "idea"]


@pytest.mark.parametrize(
    ("values", "types", "dates", "reason"),
    [
        ({"colour": "red"}, {}, "", "'colour' is no field that all records can have: write one of"),
        ({"content": "x"}, {}, "", "'content' is no field that all records can have"),
        ({"importance": "high"}, {}, "", "All records: importance"),
        ({}, {"Decisions": "decision"}, "", "'Decisions' is no rule: write a folder as Decisions/, a #tag"),
        ({}, {}, "year-first", "'year-first' is no order; write day-first or month-first"),
    ],
)
def test_choices_that_are_none_are_refused_with_what_can_be_chosen(values, types, dates, reason):
    with pytest.raises(ColumnsError, match=reason):
        check_choices(values, types, dates)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("author", "authors"),
        ("Authors", "authors"),
        ("date", "created_at"),
        ("created", "created_at"),
        ("tag", "tags"),
        ("types", "type"),
        ("entity", "entities"),
        ("categories", "categories"),
        ("concept", "concepts"),
        ("text", "content"),
        ("Source URL", "source_url"),
        ("project", "project"),
        ("state", "state"),
        ("agents", "agent"),
        ("source", "source"),
        ("wind", ""),
    ],
)
def test_fields_are_known_by_the_names_of_filters_too(name, field):
    assert field_named(name) == field
    assert all(field_named(one) == one for one in FIELDS)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("sep=;\nText;Tags\nTea, green;a|b\n", id="sep"),
        pytest.param('"sep=;"\r\nText;Tags\r\nTea, green;a|b\r\n', id="sep in quotation marks"),
        pytest.param("\ufeffsep=|\nText|Tags\nTea, green|a;b\n", id="sep after a mark"),
        pytest.param('Text,Tags\n"Tea, green","a,b",,\n', id="empty cells at the end"),
    ],
)
def test_tables_as_spreadsheets_write_them(tmp_path, text):
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    (one,) = importer_for(path).read(path, Options()).records
    assert (one.data["content"], one.data["tags"]) == ("Tea, green", ["a", "b"])


@pytest.mark.parametrize(
    ("header", "row"),
    [
        pytest.param("Titel;Beschreibung;Erstellt am;Status;Autor", "Tee;So.;02.03.2026;Entwurf;Ann", id="German"),
        pytest.param("Titre;Contenu;Créé le;Statut;Auteur", "Tee;So.;2 mars 2026;brouillon;Ann", id="French"),
        pytest.param("Título;Texto;Fecha;Estado;Autora", "Tee;So.;2 de marzo de 2026;borrador;Ann", id="Spanish"),
        pytest.param("Onderwerp;Tekst;Datum;Status;Auteur", "Tee;So.;2 maart 2026;voorstel;Ann", id="Dutch"),
    ],
)
def test_columns_are_known_in_several_languages(tmp_path, header, row):
    record = validate_source(rows_of(tmp_path, f"{header}\n{row}\n")[0]).record
    assert (record.title, record.content, record.state, record.authors) == ("Tee", "So.", "proposed", ("Ann",))
    assert str(record.created_at)[:10] == "2026-03-02"


def test_a_list_of_titles_is_a_table_of_texts(tmp_path):
    record = validate_source(rows_of(tmp_path, "Task,Due,Created\nBuy tea,2027-01-01,2026-03-02\n")[0]).record
    assert (record.content, str(record.created_at)[:10], record.valid_to) == ("Buy tea", "2026-03-02", None)
