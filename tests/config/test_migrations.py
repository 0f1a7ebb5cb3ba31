"""Migrations: released ones stay as they are, and later ones lead from the schema of the last release to today's.

`schema_0_1.sql` is the schema of the last release. Before a release, write the new one and remove the old one:

    python -m tests.config.schema tests/config/schema_0_2.sql

then name it in `LAST_RELEASE`. Until the first release the migrations may still be edited; write `schema_0_1.sql` again
afterwards. Between releases only add migrations.
"""

from pathlib import Path

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from access.models import ApiKey, AuditEvent, Membership
from curation.models import Suggestion, SuggestionPolicy
from memories.models import ImportBatch, Project
from tests.config.schema import SCRATCH, catalogue, scratch_database

LAST_RELEASE = Path(__file__).with_name("schema_0_1.sql")

# In a Citus cluster the tables of these apps are local, and a foreign key to a reference table would distribute them.
LOCAL = ("access_", "curation_", "search_")


@pytest.mark.django_db
def test_migrations_lead_from_the_last_release_to_the_schema_of_a_new_database():
    with scratch_database() as upgraded:
        with upgraded.cursor() as cursor:
            cursor.execute(LAST_RELEASE.read_text())
        call_command("migrate", database=SCRATCH, verbosity=0)
        assert catalogue(upgraded) ^ catalogue(connection) == set()


def test_every_migration_gives_up_when_a_table_stays_locked():
    """Otherwise it waits, for example for an import, and all who come after it wait for the migration."""
    loader = MigrationLoader(None)
    own = {app.label for app in apps.get_app_configs() if Path(app.path).parent == settings.BASE_DIR}
    first = {str(one): one.operations[0] for (app, _), one in loader.disk_migrations.items() if app in own}
    assert len(first) > 30
    assert [name for name, one in first.items() if "lock_timeout = '10s'" not in str(getattr(one, "sql", ""))] == []


@pytest.mark.django_db
def test_local_tables_have_no_foreign_key_to_tables_of_other_apps():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint WHERE contype='f'"
        )
        keys = cursor.fetchall()
    assert [key for key in keys if key[0].startswith(LOCAL) and not key[1].startswith(LOCAL)] == []


@pytest.mark.django_db
def test_deleting_a_project_and_a_batch_leaves_no_reference_to_them():
    project = Project.objects.create(slug="tea", name="Tea")
    batch = ImportBatch.objects.create(origin="tea.jsonl", format="jsonl")
    ada = User.objects.create_user("ada")
    Membership.objects.create(user=ada, project=project)
    key = ApiKey.objects.create(name="agent")
    key.projects.add(project)
    event = AuditEvent.objects.create(door="command", verb="import", subject_type="memory", subject_id=1, batch=batch)
    Suggestion.objects.create(kind="category", project=project, fingerprint="f", confidence=0.5)
    SuggestionPolicy.objects.create(project=project)

    Project.objects.filter(pk=project.pk).delete()
    ImportBatch.objects.filter(pk=batch.pk).delete()

    event.refresh_from_db()
    assert event.batch_id is None
    for model in (Membership, ApiKey.projects.through, Suggestion, SuggestionPolicy):
        assert not model._default_manager.exists(), model
    assert ApiKey.objects.get() == key


@pytest.mark.django_db
def test_models_need_no_other_migration():
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
