"""Times in plain words: months in seven languages, quarters, years, days, and spans such as "last week". Pure."""

import re
from calendar import monthrange
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

from text.analysis import fold

# English, German, French, Spanish, Italian, Portuguese and Dutch, as `fold` writes them.
_MONTH_WORDS = (
    "january januar janner janvier enero gennaio janeiro januari",
    "february februar feber fevrier febrero febbraio fevereiro februari",
    "march marz mars marzo marco maart",
    "april avril abril aprile",
    "may mai mayo maggio maio mei",
    "june juni juin junio giugno junho",
    "july juli juillet julio luglio julho",
    "august aout agosto augustus",
    "september septembre septiembre settembre setembro",
    "october oktober octobre octubre ottobre outubro",
    "november novembre noviembre novembro",
    "december dezember decembre diciembre dicembre dezembro",
)
_NAMES = [words.split()[0].capitalize() for words in _MONTH_WORDS]
_MONTH_OF = {word: month for month, words in enumerate(_MONTH_WORDS, 1) for word in words.split()}
# These only with a year.
_SHORT = "jan feb mar apr jun jul aug sep oct nov dec sept okt dez mrz"
_SHORT_MONTH_OF = dict(zip(_SHORT.split(), (1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 9, 10, 12, 3), strict=True))
# Months that are words or names besides: alone they need a capital, or a word such as "in" before them.
_AMBIGUOUS = {"may", "march", "mars", "marco", "mai", "april", "august", "june"}
_OF = {"of", "de", "del", "di", "do", "von", "van"}
_YEAR = re.compile(r"(?:19|20)\d\d")
_ISO = re.compile(r"((?:19|20)\d\d)-(\d\d)(?:-(\d\d))?")
_QUARTER = re.compile(r"q([1-4])")
_SPAN = {"day": 1, "days": 1, "week": 7, "weeks": 7, "tage": 1, "tagen": 1, "wochen": 7}
_LAST = {"last", "past", "letzten", "letzte"}
_MOST_DAYS = 3_660

_PHRASES = {
    "today": "today heute aujourd'hui hoy oggi hoje vandaag",
    "yesterday": "yesterday gestern hier ayer ieri ontem gisteren",
    "this week": "this_week diese_woche cette_semaine esta_semana questa_settimana deze_week",
    "last week": "last_week letzte_woche semaine_derniere semana_pasada settimana_scorsa semana_passada vorige_week",
    "this month": "this_month diesen_monat ce_mois este_mes questo_mese deze_maand",
    "last month": "last_month letzten_monat mois_dernier mes_pasado mese_scorso mes_passado vorige_maand",
    "this year": "this_year dieses_jahr cette_annee este_ano quest'anno dit_jaar",
    "last year": "last_year letztes_jahr annee_derniere ano_pasado anno_scorso ano_passado vorig_jaar",
}
_PHRASE_OF = {tuple(words.split("_")): name for name, many in _PHRASES.items() for words in many.split()}


@dataclass(frozen=True, slots=True)
class Period:
    """Days from the first to the last. `is_sure`: nothing else is meant by these words, wherever they stand."""

    first: date
    last: date
    label: str
    is_sure: bool = True
    width: int = 1
    """The number of words that it takes."""
    month: int = 0
    """A month that is named without its year: the days are those of its last one."""

    def in_year(self, year: int) -> "Period":
        """The month of another year."""
        return replace(month_period(year, self.month), is_sure=self.is_sure, width=self.width, month=self.month)


def month_period(year: int, month: int) -> Period:
    return Period(date(year, month, 1), date(year, month, monthrange(year, month)[1]), f"{_NAMES[month - 1]} {year}")


def find_period(words: Sequence[str], at: int, today: date) -> Period | None:
    """The period that begins with the word at a place; words as they are written."""
    folded = [fold(word) for word in words[at : at + 4]]
    for reader in _READERS:
        if (found := reader(folded, today)) is not None:
            if found.month and fold(words[at]) in _AMBIGUOUS and words[at][:1].islower():
                return replace(found, is_sure=False)
            return found
    return None


def is_ambiguous(word: str) -> bool:
    """Whether a month may be meant by a word, or something else."""
    return fold(word) in _AMBIGUOUS


def _phrase(words: Sequence[str], today: date) -> Period | None:
    for width in (2, 1):
        name = _PHRASE_OF.get(tuple(words[:width])) if width <= len(words) else None
        if name is not None:
            first, last = _days_of(name, today)
            return Period(first, last, name, is_sure=width == 2, width=width)
    return None


def _days_of(name: str, today: date) -> tuple[date, date]:
    back = int(name.startswith("last"))
    if name.endswith("day"):
        day = today - timedelta(days=int(name == "yesterday"))
        return day, day
    if name.endswith("week"):
        monday = today - timedelta(days=today.weekday() + 7 * back)
        return monday, monday + timedelta(days=6)
    if name.endswith("month"):
        day = today.replace(day=1) - timedelta(days=back)
        return day.replace(day=1), day.replace(day=monthrange(day.year, day.month)[1])
    return date(today.year - back, 1, 1), date(today.year - back, 12, 31)


def _span(words: Sequence[str], today: date) -> Period | None:
    """Such as "last 7 days"."""
    if len(words) < 3 or words[0] not in _LAST or not words[1].isdecimal() or words[2] not in _SPAN:
        return None
    days = int(words[1][:5]) * _SPAN[words[2]]
    if not 0 < days <= _MOST_DAYS:
        return None
    return Period(today - timedelta(days=days), today, f"last {int(words[1])} {words[2]}", width=3)


def _iso(words: Sequence[str], today: date) -> Period | None:
    """Such as 2026-03 or 2026-03-12."""
    found = _ISO.fullmatch(words[0])
    if not found or not 1 <= int(found[2]) <= 12:
        return None
    if not found[3]:
        return month_period(int(found[1]), int(found[2]))
    return _day(int(found[1]), int(found[2]), int(found[3]), 1)


def _day(year: int, month: int, day: int, width: int) -> Period | None:
    if not 1 <= day <= monthrange(year, month)[1]:
        return None
    found = date(year, month, day)
    return Period(found, found, f"{day} {_NAMES[month - 1]} {year}", width=width)


def _month(words: Sequence[str], today: date) -> Period | None:
    """Such as "March", "May 2024", "mayo de 2024", "12 May 2026" or "May 12 2026"."""
    first, *rest = words
    day = int(first) if first.isdecimal() and len(first) <= 2 else 0
    name, after = (rest[0], rest[1:]) if day and rest else (first, rest)
    month = _MONTH_OF.get(name) or _SHORT_MONTH_OF.get(name)
    if month is None:
        return None
    skipped = int(bool(after) and after[0] in _OF)
    after = after[skipped:]
    width = len(words) - len(after)
    if after and _YEAR.fullmatch(after[0]):
        year = int(after[0])
        return _day(year, month, day, width + 1) if day else replace(month_period(year, month), width=width + 1)
    if day or skipped:
        return None
    if len(after) > 1 and after[0].isdecimal() and len(after[0]) <= 2 and _YEAR.fullmatch(after[1]):
        return _day(int(after[1]), month, int(after[0]), 3)
    if name in _SHORT_MONTH_OF:
        return None
    year = today.year - int(month > today.month)
    return replace(month_period(year, month), is_sure=False, month=month)


def _quarter(words: Sequence[str], today: date) -> Period | None:
    """Such as "Q1 2026", "2026 Q1" or "Q1"."""
    pair = [_QUARTER.fullmatch(word) for word in words[:2]]
    years = [bool(_YEAR.fullmatch(word)) for word in words[:2]]
    if pair[0] and len(words) > 1 and years[1]:
        return _quarter_of(int(words[1]), int(pair[0][1]), width=2, is_sure=True)
    if len(words) > 1 and years[0] and pair[1]:
        return _quarter_of(int(words[0]), int(pair[1][1]), width=2, is_sure=True)
    if pair[0]:
        quarter = int(pair[0][1])
        year = today.year - int(3 * quarter - 2 > today.month)
        return _quarter_of(year, quarter, width=1, is_sure=False)
    return None


def _quarter_of(year: int, quarter: int, *, width: int, is_sure: bool) -> Period:
    last = 3 * quarter
    days = monthrange(year, last)[1]
    return Period(date(year, last - 2, 1), date(year, last, days), f"Q{quarter} {year}", is_sure, width)


def _year(words: Sequence[str], today: date) -> Period | None:
    if not _YEAR.fullmatch(words[0]):
        return None
    year = int(words[0])
    return Period(date(year, 1, 1), date(year, 12, 31), words[0], is_sure=False)


# The longest come first.
_READERS: tuple[Callable[[Sequence[str], date], Period | None], ...] = (
    _span,
    _phrase,
    _iso,
    _month,
    _quarter,
    _year,
)
