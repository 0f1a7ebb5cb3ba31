"""Roles have the names of what they allow, with one for writers; and people are invited by links."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

ROLES = [("reader", "Reader"), ("writer", "Writer"), ("curator", "Curator"), ("admin", "Admin")]
RENAMED = {"viewer": "reader", "owner": "admin"}


def rename_roles(apps, schema_editor):
    for old, new in RENAMED.items():
        apps.get_model("access", "Membership").objects.filter(role=old).update(role=new)


class Migration(migrations.Migration):

    dependencies = [
        ("access", "0003_idempotent_replies"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.AlterField(
            model_name="membership",
            name="role",
            field=models.CharField(choices=ROLES, default="reader", max_length=10),
        ),
        migrations.RunPython(rename_roles, migrations.RunPython.noop),
        migrations.CreateModel(
            name="Invitation",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("token_hash", models.CharField(max_length=64)),
                ("note", models.CharField(blank=True, max_length=200)),
                ("role", models.CharField(choices=ROLES, max_length=10)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("expires_at", models.DateTimeField()),
                ("used_at", models.DateTimeField(blank=True, null=True)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("projects", models.ManyToManyField(db_constraint=False, to="memories.project")),
                (
                    "used_by",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "constraints": [models.UniqueConstraint(fields=("token_hash",), name="invitation_hash_unique")],
            },
        ),
    ]
