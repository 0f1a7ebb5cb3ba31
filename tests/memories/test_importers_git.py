import os
import subprocess

import pytest

from transfer.formats import git
from transfer.formats.base import ImportFailedError, NotReadableError, Options
from transfer.formats.git import forge_of
from transfer.formats.registry import importer_for


class Repository:
    """A repository in a temporary folder, with commits at fixed times."""

    def __init__(self, root):
        self.root = root
        root.mkdir()
        self.hour = 0
        self.run("init", "--quiet", "--initial-branch=main")

    def run(self, *command, **environment):
        names = {"GIT_AUTHOR_NAME": "Ann Lee", "GIT_COMMITTER_NAME": "Bot", "GIT_CONFIG_GLOBAL": os.devnull}
        mails = {"GIT_AUTHOR_EMAIL": "a@x.example", "GIT_COMMITTER_EMAIL": "b@x.example"}
        done = subprocess.run(
            ["git", "-C", str(self.root), *command],
            env={**os.environ, **names, **mails, **environment},
            check=True,
            capture_output=True,
        )
        return done.stdout.decode().strip()

    def commit(self, message, *files, encoding="utf-8"):
        for name in files:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{self.hour}")
            self.run("add", "--", name)
        self.hour += 1
        moment = f"2025-03-01T{self.hour:02}:00:00+02:00"
        (self.root / ".git" / "message").write_bytes(message.encode(encoding))
        self.run(
            "commit",
            "--quiet",
            "--allow-empty",
            "--allow-empty-message",
            "--cleanup=verbatim",
            "-F",
            str(self.root / ".git" / "message"),
            GIT_AUTHOR_DATE=moment,
            GIT_COMMITTER_DATE=moment,
        )
        return self.run("rev-parse", "HEAD")

    def records(self, **options):
        return [found.data for found in git.read(self.root, Options(**options)).records]


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "Tea House")


def test_commits_are_memories_oldest_first(repository):
    first = repository.commit("First", "a.txt")
    second = repository.commit("Second\n\nBecause.", "lib/x y.txt", "lib/é.txt", "docs/c.md")
    one, two = repository.records()
    assert (one["id"], two["id"]) == (first, second)
    assert one["created_at"] == "2025-03-01T01:00:00+02:00"
    assert two["content"] == "Because.\n\nFiles:\n\n- `docs/c.md`\n- `lib/x y.txt`\n- `lib/é.txt`"
    assert one["content"] == "First\n\nFiles:\n\n- `a.txt`"
    assert (one["categories"], two["categories"]) == (["Files"], ["Files/lib", "Files/docs"])
    assert (two["project"], two["source"], two["source_url"]) == ("Tea House", "git", "")
    assert repository.records(project="named")[0]["project"] == "named"


@pytest.mark.parametrize(
    ("subject", "memory_type", "tags"),
    [
        pytest.param("feat(api): add it", "feature", ["api"], id="feat"),
        pytest.param("fix(api,web)!: mend it", "fix", ["api", "web", "breaking"], id="scopes and breaking"),
        pytest.param("docs: say it", "documentation", [], id="docs"),
        pytest.param("perf(core): faster", "performance", ["core"], id="perf"),
        pytest.param("chore: tidy", "chore", [], id="chore"),
        pytest.param("net: reset on close", "change", [], id="a prefix that is no type"),
        pytest.param("Fixes the crash", "fix", [], id="fix words"),
        pytest.param("Prefix all names", "change", [], id="a word within a word"),
        pytest.param('Revert "Add it"', "revert", [], id="revert"),
        pytest.param("Add it", "change", [], id="anything else"),
    ],
)
def test_the_subject_gives_the_type_and_the_tags(repository, subject, memory_type, tags):
    repository.commit(subject)
    (data,) = repository.records()
    assert (data["title"], data["type"], data["tags"]) == (subject, memory_type, tags)


def test_authors_and_co_authors_are_named_without_their_addresses(repository):
    repository.commit("Add\n\nText.\n\nCo-authored-by: Bob Ray <b@x.example>\nco-authored-by: Ann Lee <a@x.example>")
    assert repository.records()[0]["authors"] == ["Ann Lee", "Bob Ray"]


def test_issues_tickets_and_other_commits_are_links(repository):
    sha = repository.commit("First")
    repository.run("remote", "add", "origin", "https://user:secret@github.com/tea/house.git")
    repository.commit(
        f"Second (#7)\n\nFixes #12, see gh-13 and other/repo#5; closes TEA-99, not UTF-8 nor x#3.\n"
        f"This reverts commit {sha}.\nAgain #12."
    )
    first, second = repository.records()
    assert {(link["rel"], link["target"], link["url"]) for link in second["links"]} == {
        ("reverts", sha, ""),
        ("mentions", "house#7", "https://github.com/tea/house/issues/7"),
        ("resolves", "house#12", "https://github.com/tea/house/issues/12"),
        ("mentions", "house#13", "https://github.com/tea/house/issues/13"),
        ("mentions", "other/repo#5", ""),
        ("resolves", "TEA-99", ""),
    }
    assert first["source_url"] == f"https://github.com/tea/house/commit/{sha}"


@pytest.mark.parametrize(
    ("remote", "commit"),
    [
        ("git@github.com:tea/house.git", "https://github.com/tea/house/commit/"),
        ("ssh://git@codeberg.org/tea/house", "https://codeberg.org/tea/house/commit/"),
        ("https://gitlab.com/tea/sub/house.git", "https://gitlab.com/tea/sub/house/-/commit/"),
        ("https://bitbucket.org/tea/house", "https://bitbucket.org/tea/house/commits/"),
        ("https://git.example/tea/house.git", ""),
        ("/srv/house.git", ""),
        ("", ""),
    ],
)
def test_a_known_forge_gives_the_address(remote, commit):
    assert forge_of(remote, "house").commit == commit


def test_bytes_that_are_not_utf8_are_replaced(repository):
    repository.commit("Caf\xe9", encoding="latin-1")
    (repository.root / os.fsdecode(b"caf\xe9.txt")).write_text("x")
    repository.commit("Next", os.fsdecode(b"caf\xe9.txt"))
    one, two = repository.records()
    # Git takes a message that is not UTF-8 for Latin-1; of names of files it says nothing.
    assert one["title"] == "Café"
    assert "- `caf\ufffd.txt`" in two["content"]


def test_a_shallow_clone_is_read(repository, tmp_path):
    for n in range(3):
        repository.commit(f"Commit {n}", "a.txt")
    subprocess.run(
        ["git", "clone", "--quiet", "--depth=2", repository.root.as_uri(), str(tmp_path / "shallow")], check=True
    )
    titles = [found.data["title"] for found in git.read(tmp_path / "shallow", Options()).records]
    assert titles == ["Commit 1", "Commit 2"]


def test_a_repository_is_known_and_an_empty_one_says_so(repository):
    assert importer_for(repository.root).name == "git"
    with pytest.raises(NotReadableError, match="the repository has no commits yet"):
        repository.records()


def test_a_folder_that_is_no_repository_fails_in_gits_words(tmp_path):
    (tmp_path / "broken" / ".git").mkdir(parents=True)
    with pytest.raises(ImportFailedError, match="git cannot read it: not a git repository"):
        git.read(tmp_path / "broken", Options())
