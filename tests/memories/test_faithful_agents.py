"""The memory and the files of agents are found, belong to the project of their repository, and are followed."""

import json
import os
import shutil
from pathlib import Path

import pytest

from memories.models import Memory
from tests.memories.imports import run
from tests.memories.test_following import follow, read
from tests.memories.test_importers_claude_code import LINES
from transfer.discover import discoveries
from transfer.formats.base import Options, SourceRecord
from transfer.formats.registry import BUNDLE, importer_for

MEMORY = "---\nname: tests-run-slowly\ndescription: How to run tests\nmetadata:\n  type: feedback\n---\nUse one worker."


@pytest.fixture
def home(tmp_path):
    """A home with a repository that Claude Code has worked in, and remembers something about."""
    home, repository = tmp_path / "ann", tmp_path / "ann/code/tea house"
    for folder in (".git", ".cursor/rules", ".github"):
        (repository / folder).mkdir(parents=True)
    projects = home / ".claude/projects/-ann-code-tea-house"
    (projects / "memory").mkdir(parents=True)
    lines = [one | {"cwd": str(repository)} for one in LINES[3:4]]
    (projects / "s.jsonl").write_text("\n".join(map(json.dumps, lines)))
    os.utime(projects / "s.jsonl", (1_700_000_000, 1_700_000_000))
    (projects / "memory/MEMORY.md").write_text("- [Tests](tests.md): how to run them")
    (projects / "memory/tests.md").write_text(MEMORY)
    (repository / "CLAUDE.md").write_text("# Rules\n\nBe brief.")
    (repository / "AGENTS.md").write_text("Use uv.")
    (repository / ".cursor/rules/style.mdc").write_text("---\nglobs: *.ts\nalwaysApply: false\n---\nNo semicolons.")
    (repository / ".github/copilot-instructions.md").write_text("Write tests.")
    (home / ".claude/CLAUDE.md").write_text("Everywhere: be kind.")
    return home


def test_memory_and_files_of_agents_are_found(home):
    found = {
        str(one.path.relative_to(home)): (one.importer.name, one.memories, one.refused) for one in discoveries(home, {})
    }
    assert found == {
        ".claude/projects": ("claude-code", 1, 0),
        ".claude/projects/-ann-code-tea-house/memory": ("markdown", 1, 0),
        ".claude/CLAUDE.md": ("markdown", 1, 0),
        "code/tea house/CLAUDE.md": ("markdown", 1, 0),
        "code/tea house/AGENTS.md": ("markdown", 1, 0),
        "code/tea house/.cursor/rules": ("markdown", 1, 0),
        "code/tea house/.github/copilot-instructions.md": ("markdown", 1, 0),
    }


@pytest.mark.parametrize(
    ("place", "project", "kind", "title"),
    [
        (".claude/projects/-ann-code-tea-house/memory", "tea house", "feedback", "tests-run-slowly"),
        (".claude/projects", "tea house", "session", "Why is the oolong bitter?"),
        (".claude/CLAUDE.md", "", "instructions", "CLAUDE"),
        ("code/tea house/CLAUDE.md", "tea house", "instructions", "Rules"),
        ("code/tea house/AGENTS.md", "tea house", "instructions", "AGENTS"),
        ("code/tea house/.cursor/rules", "tea house", None, "style"),
        ("code/tea house/.github/copilot-instructions.md", "tea house", "instructions", "copilot-instructions"),
    ],
)
def test_they_belong_to_the_project_of_the_repository(home, place, project, kind, title):
    path = home / place
    (one,) = importer_for(path).read(path, Options()).records
    assert (one.data["project"], one.data.get("type"), one.data["title"]) == (project, kind, title)


def test_an_index_by_itself_is_a_memory(home):
    folder = home / ".claude/projects/-ann-code-tea-house/memory"
    (folder / "tests.md").unlink()
    (one,) = importer_for(folder).read(folder, Options()).records
    assert one.data["id"] == "MEMORY.md"


@pytest.mark.django_db
def test_memory_and_sessions_are_followed(home):
    memory, sessions = home / ".claude/projects/-ann-code-tea-house/memory", home / ".claude/projects"
    follow(memory)
    follow(sessions)
    assert set(Memory.objects.values_list("project__slug", "memory_type")) == {
        ("tea-house", "feedback"),
        ("tea-house", "session"),
    }
    (memory / "more.md").write_text("Tea is in the kitchen.")
    assert read(memory) == (1, 0, 0, 0)
    session = sessions / "-ann-code-tea-house/s.jsonl"
    with session.open("a") as file:
        file.write("\n" + json.dumps(LINES[-1]))
    # It may go on: it is read once it rests.
    assert read(sessions) == (0, 0, 0, 0)
    os.utime(session, (1_700_000_500, 1_700_000_500))
    assert read(sessions) == (0, 1, 0, 0)
    assert "Too hot." in Memory.objects.get(memory_type="session").content


@pytest.mark.django_db
def test_a_followed_file_for_agents_is_read_again_when_it_changes(home):
    path = home / "code/tea house/CLAUDE.md"
    follow(path)
    path.write_text("# Rules\n\nBe brief, and kind.")
    assert read(path) == (0, 1, 0, 0)
    assert "kind" in Memory.objects.get().content
    assert "Nothing new" in run(path)


@pytest.mark.parametrize("top", [".claude", ".claude/projects", ".claude/projects/-ann-code-tea-house"])
@pytest.mark.parametrize("is_packed", [True, False])
def test_sessions_and_memory_come_in_together(home, tmp_path, top, is_packed):
    folder = tmp_path / "uploaded"
    shutil.copytree(home / top, folder / Path(top).name)
    if is_packed:
        path = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", folder))
        importer = importer_for(path)
    else:
        path, importer = folder, BUNDLE
    records = {one.location: one for one in importer.read(path, Options()).records if isinstance(one, SourceRecord)}
    found = {(one.data["title"], one.data["project"]) for one in records.values()}
    expected = {("Why is the oolong bitter?", "tea house"), ("tests-run-slowly", "tea house")}
    assert {one for one in found if one[0] != "CLAUDE"} == expected
    assert all("MEMORY.md" not in place for place in records)
