"""The templates of pages: they escape what they show, and refuse a misspelt name instead of showing nothing."""

import pytest
from django.template import Context, Template, engines
from django.template.loader import render_to_string
from django.test import RequestFactory
from django.urls import reverse
from django.utils.safestring import SafeString
from jinja2 import UndefinedError

from explorer.explore.page import Notice


def shown(source, **values):
    return engines["jinja2"].from_string(source).render(values)


def test_template_escapes_its_values():
    source = '{% from "_macros.html" import notice_list %}{{ notice_list(notices) }}'
    page = shown(source, notices=[Notice('a <b> & "c"', parameter="<q>")])
    assert "a &lt;b&gt; &amp; &#34;c&#34;" in page
    assert "<code>&lt;q&gt;</code>" in page


def test_template_refuses_a_value_that_is_missing():
    with pytest.raises(UndefinedError, match="plot"):
        render_to_string("explorer/_histogram.html")


@pytest.mark.parametrize("value", ["text", 7, SafeString("<i>safe</i>"), SafeString("")], ids=repr)
def test_template_shows_any_value_as_django_does(value):
    assert shown("{{ value }}", value=value) == Template("{{ value }}").render(Context({"value": value}))


def test_address_of_a_view_is_that_of_django():
    assert shown("{{ url('explorer:memory', 7) }}") == reverse("explorer:memory", args=[7])


def test_page_of_the_admin_has_parts_of_the_other_pages():
    request = RequestFactory().get("/")
    part = Template('{% page_part "_brand.html" %}').render(Context({"request": request}))
    assert 'aria-label="Mnemoscope, home"' in part
