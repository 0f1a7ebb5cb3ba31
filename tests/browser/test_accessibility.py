"""Every page by axe: the rules of WCAG 2.2 up to AA, in both themes, and on a phone."""

import json
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from curation.suggestions.generate import suggest
from curation.suggestions.proposals import Kind
from memories.models import FollowedSource, ImportBatch, Memory
from memories.records import MemoryChanges
from memories.services import memory_update
from search.models import SavedView
from tests.browser.pages import addresses
from tests.curation.suggestions.conftest import EVERYTHING, remember
from tests.map_corpus import put_on_map
from transfer.follow.services import source_new
from transfer.follow.sync import Choices, source_sync
from transfer.formats.registry import importer_named
from transfer.models import ImportJob

AXE = next((Path(__file__).parent / "vendor").glob("axe-core-*/axe.min.js"))
EVERY_RULE = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
OF_COLOURS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
OF_SIZES = {"type": "rule", "values": ["target-size", "scrollable-region-focusable", "color-contrast"]}
# The page stays loaded: colours are checked again in the other theme, sizes at the width of a phone.
LOOKS = (("light", 1280, EVERY_RULE), ("dark", 1280, OF_COLOURS), ("light", 390, OF_SIZES))
# The markup of Swagger is not ours, nests links in buttons, and is dark by a filter, of which axe knows nothing.
NOT_OURS = "#swagger-ui"
VIOLATIONS = """async ([rules, notOurs]) => {
    const scope = {include: [["html"]], exclude: [[notOurs]]};
    const found = await axe.run(scope, {runOnly: rules, resultTypes: ["violations"]});
    return found.violations.flatMap((rule) => rule.nodes.map((node) =>
        `${rule.id} ${node.target.join(" ")}: ${[...node.any, ...node.all, ...node.none][0]?.message}`));
}"""


@pytest.fixture
def everything(site, session, settings, tmp_path, monkeypatch):
    """A site on which there is something of each kind to open."""
    settings.HOME = tmp_path
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    tie = {
        "record": "relationship",
        "source": "person:Mio",
        "type": "owns",
        "target": "tool:kettle",
        "fact": "It is hers.",
    }
    path = tmp_path / "more.jsonl"
    path.write_text(json.dumps(tie) + "\n")
    call_command("import_memories", str(path), verbosity=0)
    remember("tea", "One", "One.", tags=["green-tea", "kettle_lid"], session="s-1", agent="codex")
    remember("tea", "Two", "Two.", tags=["greentea", "kettle-lid"], session="s-1", agent="codex")
    suggest(kinds=[Kind.TAG_DUPLICATE], viewer=EVERYTHING)
    reader = User.objects.get(username="reader")
    SavedView.objects.create(slug="notes", name="Notes", query="type=note", owner=reader)
    batch = ImportBatch.objects.latest("pk")
    ImportJob.objects.create(user=reader, name="more.jsonl", path=str(path), state=ImportJob.State.DONE, batch=batch)
    follow_with_a_conflict(tmp_path / "notes")
    put_on_map()
    return site


def follow_with_a_conflict(folder):
    """A followed note that was edited here, and there."""
    folder.mkdir()
    (folder / "oolong.md").write_text("# Oolong\n\nA tea.")
    source = source_new(path=folder, importer=importer_named("markdown"), project="tea", viewer=EVERYTHING)
    source_sync(source, Choices(EVERYTHING))
    memory = Memory.objects.get(title="Oolong")
    memory_update(memory_id=memory.pk, changes=MemoryChanges(content="Mine."), viewer=EVERYTHING)
    (folder / "oolong.md").write_text("# Oolong\n\nTheirs.")
    source_sync(FollowedSource.objects.get(), Choices(EVERYTHING))


def test_no_page_violates_wcag_in_either_theme_or_on_a_phone(everything, open_page):
    page = open_page("/")
    page.add_init_script(path=AXE)
    violations = []
    for one, address in addresses(page.context, everything.url).items():
        assert address, f"nothing leads to the page {one.name}"
        if one.is_public:
            page.context.clear_cookies()
        answer = page.goto(everything.url + address)
        assert answer.status == one.status, f"{one.name} at {address}"
        for theme, width, rules in LOOKS:
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=theme)
            found = page.evaluate(VIOLATIONS, [rules, NOT_OURS])
            violations += [f"{one.name}, {theme}, {width} px: {violation}" for violation in found]
    # Pages that are meant to be missing, and styles of Swagger's, which the policy refuses.
    expected = ("Failed to load resource", "Applying inline style")
    open_page.complaints[:] = [text for text in open_page.complaints if not text.startswith(expected)]
    assert not violations, "\n".join(violations)
