"""The environment of the pages' templates, in Jinja2: lines of tags leave no space. In tests a misspelt name is
an error; for readers it is empty."""

from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any

from django.http import HttpRequest
from django.template import Context, Library, defaultfilters
from django.template.backends.utils import csrf_input_lazy, csrf_token_lazy
from django.template.loader import get_template, render_to_string
from django.templatetags.static import static
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from django_htmx.jinja import htmx_script
from jinja2 import Environment

from text.formatting import day_label, day_text, moment_label, number, plural, type_family, verb_text
from text.highlight import plain_title, title_or_number


def environment(**options: Any) -> Environment:
    """Django's backend gives it the options."""
    options |= {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    made = Environment(autoescape=options.pop("autoescape", True), **options)
    made.globals |= {"url": url, "static": static, "htmx_script": htmx_script, "is_fragment": False}
    made.filters |= {"number": number, "day": day_text, "plural": plural, "moment": moment_label, "family": type_family}
    made.filters |= {
        "local_day": day_label,
        "percent": "{:.0%}".format,
        "plain_title": plain_title,
        "title_of": title_or_number,
    }
    made.filters |= {"title_of": title_or_number, "verb_text": verb_text}
    made.filters |= {name: getattr(defaultfilters, name) for name in ("capfirst", "date", "pluralize", "slugify")}
    return made


@lru_cache(maxsize=4_096)
def url(name: str, *arguments: Hashable) -> str:
    """The path of a view: looked up once, since a page has hundreds of links to few paths."""
    return reverse(name, args=arguments)


def render_block(request: HttpRequest, name: str, block: str, context: Mapping[str, object]) -> str:
    """One block of a page alone, which htmx swaps for the one that is shown."""
    page: Any = get_template(name)
    tokens = {"csrf_input": csrf_input_lazy(request), "csrf_token": csrf_token_lazy(request)}
    values = {**context, **tokens, "request": request}
    for processor in page.backend.template_context_processors:
        values |= processor(request)
    known = page.template.new_context(values)
    return "".join(page.template.blocks[block](known))


register = Library()


@register.simple_tag(takes_context=True)
def page_part(context: Context, name: str, **values: object) -> SafeString:
    """A template of the site by its name."""
    # Safe, since its own engine escapes.
    return mark_safe(render_to_string(name, values, context["request"]))  # noqa: S308
