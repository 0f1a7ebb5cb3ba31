"""The words of a text as a condition of Django's queries, for lists that are no searches."""

from django.db.models import BooleanField, F, Func, Q, Value

from memories.models import Project
from search.engines.sql import tsquery
from text.query_syntax import parse_text


class TermsMatch(Func):
    """Whether terms match a tsquery. Uses memory_terms_gin."""

    template = "(%(expressions)s::tsquery)"
    arg_joiner = " @@ "
    output_field = BooleanField()


def has_words(text: str) -> Q:
    """A condition for memories with all words of a text, in the language of any project; empty without words."""
    found = Q()
    for language in Project.objects.order_by().values_list("language", flat=True).distinct():
        patterns = parse_text(text, language).positive
        if patterns:
            terms = Value(" & ".join(f"({tsquery(pattern)})" for pattern in patterns))
            found |= Q(TermsMatch(F("terms"), terms))
    return found
