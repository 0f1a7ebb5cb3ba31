"""Fragments of pages: they escape what they show, and refuse a misspelt name instead of showing nothing."""

import pytest
from django.template import Context, Template
from django.urls import NoReverseMatch, reverse
from django.utils.safestring import SafeString
from jinja2 import UndefinedError

from explorer.explore.page import Notice


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


@pytest.mark.parametrize("value", ["text", 7, SafeString("<i>safe</i>"), SafeString("")], ids=repr)
def test_fragment_shows_any_value_as_django_does(value):
    with_fragment = shown('{% fragment "notices.jinja" notices=found %}', found=[Notice(value)])
    assert " ".join(with_fragment.split()) == " ".join(
        shown('<div class="notice" role="note"> <p> {{ value }} </p> </div>', value=value).split()
    )


def test_path_of_a_view_is_that_of_django():
    names = ("home", "explorer:explore", "api:openapi-view", "admin:index")
    assert [shown(f"{{% url '{name}' %}}") for name in names] == [reverse(name) for name in names]
    assert shown("{% url 'explorer:memory' 7 %}") == reverse("explorer:memory", args=[7])
    assert shown("{% url name %}", name="home") == reverse("home")
    assert shown("{% url 'home' as here %}<{{ here }}>") == f"<{reverse('home')}>"
    assert shown("{% url 'no_such_view' as here %}<{{ here }}>") == "<>"
    with pytest.raises(NoReverseMatch):
        shown("{% url 'no_such_view' %}")
