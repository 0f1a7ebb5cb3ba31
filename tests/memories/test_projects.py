"""Projects are made and described in one place: the slug stays, the language while there are no memories."""

import pytest

from access.models import AuditEvent
from access.viewer import Viewer, command_viewer
from memories.models import Corpus, Memory, Project
from memories.projects import project_create, project_update
from memories.refusals import AlreadyExistsError, ChangeRefusedError, NotAllowedError

pytestmark = pytest.mark.django_db


@pytest.fixture
def tea():
    return project_create(slug="tea", name="Tea", viewer=command_viewer())


def update(project, viewer=None, **changes):
    said = {"name": "Tea", "description": "", "language": "english", **changes}
    return project_update(project=project, viewer=viewer or command_viewer(), **said)


def revision():
    return Corpus.objects.get().revision


def test_project_is_made_with_its_event_and_a_new_revision():
    before = revision()
    project = project_create(slug="tea", name="Tea", language="german", viewer=command_viewer())
    event = AuditEvent.objects.get()
    assert (event.verb, event.subject_id, event.before) == ("project_create", project.pk, None)
    assert event.after == {"slug": "tea", "name": "Tea", "description": "", "language": "german", "secrets": ""}
    assert revision() == before + 1


def test_update_tells_what_stood_before_and_after(tea):
    before = revision()
    assert update(tea, name="Tea house", description="All about tea.").name == "Tea house"
    event = AuditEvent.objects.get(verb="project_update")
    assert (event.before["name"], event.after["name"]) == ("Tea", "Tea house")
    assert (event.before["description"], event.after["description"]) == ("", "All about tea.")
    assert revision() == before + 1


def test_update_that_changes_nothing_leaves_no_trace(tea):
    before = revision()
    update(tea)
    assert AuditEvent.objects.count() == 1
    assert revision() == before


def test_language_stays_once_there_are_memories(tea):
    update(tea, language="dutch")
    Memory.objects.create(id=1, project=tea, content="Thee.")
    with pytest.raises(ChangeRefusedError, match="it determines their terms"):
        update(tea, language="english")
    assert Project.objects.get().language == "dutch"


def test_only_curators_of_a_project_change_it(tea):
    own = frozenset({tea.pk})
    writer = Viewer(own, frozenset({"read", "write"}), own)
    curator = Viewer(own, frozenset({"read", "write", "curate"}), own)
    with pytest.raises(NotAllowedError, match="cannot change the project 'tea'"):
        update(tea, viewer=writer, name="x")
    with pytest.raises(NotAllowedError, match="cannot create projects"):
        project_create(slug="x", name="X", viewer=curator)
    assert update(tea, viewer=curator, name="Tea house").name == "Tea house"


def test_language_that_nothing_stems_is_refused(tea):
    with pytest.raises(ChangeRefusedError, match="'klingon' is not known: write one of "):
        update(tea, language="klingon")
    with pytest.raises(ChangeRefusedError, match="'klingon' is not known"):
        project_create(slug="x", name="X", language="klingon", viewer=command_viewer())


def test_second_project_of_a_slug_is_refused_and_changes_nothing(tea):
    with pytest.raises(AlreadyExistsError, match="The project 'tea' already exists"):
        project_create(slug="tea", name="Other", viewer=command_viewer())
    assert Project.objects.get().name == "Tea"
    assert AuditEvent.objects.count() == 1
