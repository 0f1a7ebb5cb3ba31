"""The words of a text as a condition of Django's queries, for lists that are no searches."""

from django.db.models import BooleanField, F, Func, Q, Value

from memories.models import Project
from search.engines.sql import tsquery
from text.query_syntax import TextQuery, parse_text


class TermsMatch(Func):
    """Whether terms match a tsquery. Uses memory_terms_gin."""

    template = "(%(expressions)s::tsquery)"
    arg_joiner = " @@ "
    output_field = BooleanField()


def has_words(text: str) -> Q:
    """A condition for memories with all words of a text, or of one of its alternatives, and with none that it excludes.

    In the language of any project; empty without words to look for.
    """
    found = Q()
    for language in Project.objects.order_by().values_list("language", flat=True).distinct():
        words = parse_text(text, language)
        if words.positive:
            found |= Q(TermsMatch(F("terms"), Value(_all_of(words))))
    # A word is excluded in the spelling of every language.
    return found & ~excluded if found and (excluded := has_excluded_words(text)) else found


def has_excluded_words(text: str) -> Q:
    """A condition for memories with any word that a text excludes, in the language of any project; empty without."""
    found = Q()
    for language in Project.objects.order_by().values_list("language", flat=True).distinct():
        if excluded := parse_text(text, language).excluded:
            found |= Q(TermsMatch(F("terms"), Value(" | ".join(f"({tsquery(one)})" for one in excluded))))
    return found


def _all_of(words: TextQuery) -> str:
    parts = [tsquery(pattern) for pattern in words.required]
    if words.groups:
        groups = (" & ".join(f"({tsquery(one)})" for one in (*group.phrases, *group.words)) for group in words.groups)
        parts.append(" | ".join(f"({group})" for group in groups))
    return " & ".join(f"({part})" for part in parts)
