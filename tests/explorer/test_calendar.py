"""The calendar: each day leads to as many memories as it shows."""

import re
from dataclasses import replace
from datetime import date

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.viewer import Viewer
from explorer.explore.calendar_page import build_calendar
from explorer.page_query import PageQuery
from memories.models import Project
from search.calendar_days import calendar_days, days_since
from search.query import SearchQuery
from search.run import run
from tests.html import html_of

pytestmark = pytest.mark.django_db


def test_days_of_the_last_year_of_the_query(corpus, everyone):
    found = calendar_days(SearchQuery(), 0, everyone)
    assert (found.year, found.years, found.total) == (2025, ((2024, 9), (2025, 5)), 14)
    assert found.days == {date(2025, 3, 1): 2, date(2025, 3, 30): 1, date(2025, 6, 1): 1, date(2025, 7, 4): 1}
    assert calendar_days(SearchQuery(date_to="2024-06-30"), 0, everyone).year == 2024


def test_a_day_is_that_of_the_time_zone_and_leads_to_its_memories(corpus, everyone):
    query = SearchQuery(project=("tea",), timezone="Asia/Tokyo")
    found = calendar_days(query, 2024, everyone)
    assert found.days[date(2024, 1, 6)] == 2
    for day, count in found.days.items():
        assert run(found.base.between(day.isoformat(), day.isoformat()), everyone).total == count


def test_months_add_up_to_their_years_and_are_listed_if_there_are_several(corpus, everyone):
    found = calendar_days(SearchQuery(), 0, everyone)
    assert sum(count for (year, _), count in found.months.items() if year == 2024) == 9
    rows = build_calendar(PageQuery(), found).by_month
    assert [(row.label, row.count, len(row.cells)) for row in rows] == [("2025", "5", 12), ("2024", "9", 12)]
    assert rows[0].cells[2].name == "Mar 2025: 3"
    assert rows[0].cells[2].url == "/explore/?from=2025-03-01&to=2025-03-31"


def test_today_and_the_days_to_come_are_marked(corpus, everyone):
    found = replace(calendar_days(SearchQuery(), 0, everyone), today=date(2025, 3, 1))
    shades = {day.name: day.shade for row in build_calendar(PageQuery(), found).rows for day in row.days}
    assert shades["Sat, 1 Mar 2025: 2"] == "d5 today"
    saturdays = [day.shade for day in build_calendar(PageQuery(), found).rows[5].days]
    assert saturdays[:3] == ["", "", ""]
    assert "ahead" not in saturdays[:9]
    assert set(saturdays[9:]) == {"ahead", "outside"}


def test_days_since_a_day_are_those_with_memories(corpus, everyone):
    assert days_since(SearchQuery(), date(2025, 3, 2), everyone) == {
        date(2025, 3, 30): 1,
        date(2025, 6, 1): 1,
        date(2025, 7, 4): 1,
    }


def test_hidden_memories_are_on_no_day(corpus):
    viewer = Viewer(project_ids=frozenset(Project.objects.filter(slug="boat").values_list("pk", flat=True)))
    assert calendar_days(SearchQuery(), 0, viewer).years == ((2024, 3), (2025, 3))


@pytest.fixture
def reader(corpus):
    client = Client()
    client.force_login(User.objects.create_superuser("reader"))
    return client


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_the_page_has_a_cell_for_each_day_of_the_year(reader):
    page = html_of(reader.get("/explore/calendar/?tag=tea&year=2024"))
    assert "<h1>Calendar of 2024</h1>" in page
    assert len(re.findall(r"<td( class=\"d\d\")?>", page.partition("<tbody>")[2].partition("</tbody>")[0])) == 366
    days = re.findall(r'href="([^"]+)" tabindex="-1" aria-label="([^"]+)"', page)
    assert [name for _, name in days] == ["Wed, 28 Feb 2024: 1", "Fri, 5 Jan 2024: 1", "Fri, 1 Nov 2024: 1"]
    for url, _ in days:
        assert "1 memory" in html_of(reader.get(url.replace("&amp;", "&")))


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
@pytest.mark.parametrize("asked", ["?tag=none", "?year=1", "?year=9999", "?year=never"])
def test_the_page_answers_for_any_year_and_for_none(reader, asked):
    assert reader.get(f"/explore/calendar/{asked}").status_code == 200
