"""Titles without the marks of inline Markdown."""

import pytest

from text.highlight import MarkedText, plain_parts, plain_title


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        pytest.param("Support *loop_factory* in runners", "Support loop_factory in runners", id="emphasis"),
        pytest.param("The **slow** path and ***both***", "The slow path and both", id="strong"),
        pytest.param("Deprecate `cgi` and ``a `b` c``", "Deprecate cgi and a `b` c", id="code"),
        pytest.param("`*args` are passed on", "*args are passed on", id="code that holds a star"),
        pytest.param("*`timeout`* is a float", "timeout is a float", id="code within emphasis"),
        pytest.param("See [the *guide*](https://example.org/a_(b)) first", "See the guide first", id="link"),
        pytest.param("Pass *args and **kwargs through", "Pass *args and **kwargs through", id="arguments"),
        pytest.param("2 * 3 * 4 and a[0](b", "2 * 3 * 4 and a[0](b", id="no pairs"),
        pytest.param("Call __init__ and snake_case", "Call __init__ and snake_case", id="underscores"),
        pytest.param("[[tea/Green Tea|The tea]] and ![[pot.png]]", "The tea and pot.png", id="names in brackets"),
        pytest.param("> [!tip] Use the stone", "Use the stone", id="callout"),
        pytest.param("==Hot **water**== now %%later%%", "Hot water now ", id="marked and hidden"),
        pytest.param("x==1 and y==2, 5%% of 6%%", "x==1 and y==2, 5%% of 6%%", id="comparisons"),
        pytest.param("", "", id="empty"),
    ],
)
def test_marks_of_pairs_are_left_out(title, shown):
    assert plain_title(title) == shown


def test_highlights_stay_on_their_words():
    parts = (
        MarkedText("Set *", False),
        MarkedText("timeout", True),
        MarkedText("* in `ru", False),
        MarkedText("n", True),
    )
    assert plain_parts((*parts, MarkedText("`", False))) == (
        MarkedText("Set ", False),
        MarkedText("timeout", True),
        MarkedText(" in ru", False),
        MarkedText("n", True),
    )
