"""Key phrases and their types, cues of replacement, and marked texts."""

import pytest

from curation.suggestions.duplicate_memories import find_cue
from curation.suggestions.evidence import Piece, with_marked
from curation.suggestions.key_concepts import concept_type, key_phrases, phrase_key


@pytest.mark.parametrize(
    ("phrase", "kind"),
    [
        pytest.param("asyncio.run", "identifier", id="dotted"),
        pytest.param("foo_bar", "identifier", id="underscored"),
        pytest.param("matTooltip", "identifier", id="camel case"),
        pytest.param("--dry-run", "identifier", id="flag"),
        pytest.param("SQL", "technology", id="acronym"),
        pytest.param("OAuth2", "technology", id="digits"),
        pytest.param("Visual Studio", "technology", id="capitals"),
        pytest.param("type guard", "thematic", id="words"),
        pytest.param("Caching", "thematic", id="one capital may be a sentence's"),
    ],
)
def test_the_type_of_a_concept_is_told_from_its_spelling(phrase, kind):
    assert concept_type(phrase) == kind


def test_what_texts_have_as_code_is_an_identifier():
    found = key_phrases("", "Open `MatTooltip` late. The `MatTooltip()` waits.", "english")
    assert [phrase.text for phrase in found if phrase.is_quoted] == ["MatTooltip"]
    assert concept_type("MatTooltip", is_quoted=True) == "identifier"
    assert concept_type("MatTooltip") == "technology"


def test_a_capital_within_a_sentence_makes_a_name():
    found = key_phrases("", "Works on Safari now. Prevent crashes on Safari.", "english")
    assert [phrase.text for phrase in found if phrase.is_name] == ["Safari"]
    assert (concept_type("Safari"), concept_type("Safari", is_name=True)) == ("thematic", "technology")


def test_a_phrase_is_known_whatever_its_forms():
    assert phrase_key("Type Guards", "english") == phrase_key("type guard", "english") == "type guard"
    assert phrase_key("type-guard", "english") == "type guard"
    assert phrase_key("foo_bar", "english") != phrase_key("foo bar", "english")


def test_key_phrases_leave_out_code_addresses_and_what_was_done():
    text = "Sourdough starter needs flour. Feed the sourdough starter daily. See https://example.org/zzz\n\n```\nzebra()\n```"
    found = {phrase.key for phrase in key_phrases("Fix sourdough starter", text, "english")}
    assert "sourdough starter" in found
    assert not {"zebra", "zzz", "fix", "fix sourdough"} & found


def test_what_is_only_a_part_of_a_longer_name_is_no_key_phrase():
    text = "PyBytes_DecodeEscape overflows. Since loop.create_server calls PyBytes_DecodeEscape, sockets stay open."
    phrases = {phrase.text for phrase in key_phrases("PyBytes_DecodeEscape", text, "english")}
    assert not phrases & {"PyBytes", "DecodeEscape", "loop.create"}
    assert "overflows" in phrases


@pytest.mark.parametrize(
    ("text", "what"),
    [
        pytest.param("The oven is old. We no longer use it!", "ends", id="no longer"),
        pytest.param("This replaces the old rule.", "replaces", id="replaces"),
        pytest.param("Reverted the switch to gas.", "reverts", id="the strongest first"),
        pytest.param("Use gas instead of wood.", "changes", id="instead"),
    ],
)
def test_a_word_for_replacing_is_a_cue(text, what):
    assert find_cue(text).what == what


def test_what_is_looked_for_is_marked_however_lines_break():
    assert with_marked("Feed the sourdough\nstarter.", ["sourdough starter"]) == (
        Piece("Feed the "),
        Piece("sourdough\nstarter", is_marked=True),
        Piece("."),
    )
