"""Fragments of pages: they escape what they show, and refuse a misspelt name instead of showing nothing."""

import pytest
from django.template import Context, Template
from jinja2 import UndefinedError

from explorer.page import Notice


def shown(source, **values):
    return Template(source).render(Context(values))


def test_fragment_escapes_its_values():
    page = shown('{% fragment "notices.jinja" notices=found %}', found=[Notice('a <b> & "c"', parameter="<q>")])
    assert "a &lt;b&gt; &amp; &#34;c&#34;" in page
    assert "<code>&lt;q&gt;</code>" in page


def test_fragment_knows_what_the_page_knows():
    page = shown('{% with notices=found %}{% fragment "notices.jinja" %}{% endwith %}', found=[Notice("late")])
    assert "late" in page


def test_fragment_refuses_a_value_that_is_missing():
    with pytest.raises(UndefinedError, match="plot"):
        shown('{% fragment "bars.jinja" %}')
