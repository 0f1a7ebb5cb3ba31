"""The tables of memberships, API keys, sign-in tokens and the audit trail.

References to projects and import batches have no database constraint: in a Citus cluster those are reference tables
and these are local ones. Django removes or empties them with their targets.
"""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('memories', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.CreateModel(
            name='ApiKey',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=200)),
                ('prefix', models.CharField(max_length=12)),
                ('key_hash', models.CharField(max_length=64)),
                ('scopes', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=10), default=list, size=None)),
                ('every_project', models.BooleanField(default=False)),
                ('requests_per_minute', models.PositiveIntegerField(blank=True, help_text="Empty for the limit of this site (API_REQUESTS_PER_MINUTE).", null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('last_used_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('created_by', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('projects', models.ManyToManyField(blank=True, db_constraint=False, to='memories.project')),
            ],
            options={
                'verbose_name': 'API key',
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='AuditEvent',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('at', models.DateTimeField(default=django.utils.timezone.now)),
                ('door', models.CharField(choices=[('page', 'Page'), ('api', 'Api'), ('mcp', 'Mcp'), ('admin', 'Admin'), ('command', 'Command')], max_length=10)),
                ('verb', models.CharField(max_length=50)),
                ('subject_type', models.CharField(max_length=50)),
                ('subject_id', models.BigIntegerField()),
                ('before', models.JSONField(blank=True, null=True)),
                ('after', models.JSONField(blank=True, null=True)),
                ('note', models.TextField(blank=True)),
                ('api_key', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='access.apikey')),
                ('batch', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='events', to='memories.importbatch')),
                ('user', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='Membership',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('role', models.CharField(choices=[('viewer', 'Viewer'), ('curator', 'Curator'), ('owner', 'Owner')], default='viewer', max_length=10)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('project', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to='memories.project')),
                ('user', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='SignInToken',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('token_hash', models.CharField(max_length=64)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('expires_at', models.DateTimeField()),
                ('used_at', models.DateTimeField(blank=True, null=True)),
                ('user', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'sign-in token',
            },
        ),
        migrations.AddConstraint(
            model_name='apikey',
            constraint=models.UniqueConstraint(fields=('key_hash',), name='apikey_hash_unique'),
        ),
        migrations.AddIndex(
            model_name='auditevent',
            index=models.Index(fields=['subject_type', 'subject_id', '-id'], name='auditevent_subject_idx'),
        ),
        migrations.AddIndex(
            model_name='auditevent',
            index=models.Index(fields=['-at'], name='auditevent_at_idx'),
        ),
        migrations.AddConstraint(
            model_name='membership',
            constraint=models.UniqueConstraint(fields=('user', 'project'), name='membership_unique'),
        ),
        migrations.AddConstraint(
            model_name='signintoken',
            constraint=models.UniqueConstraint(fields=('token_hash',), name='signintoken_hash_unique'),
        ),
        # `db_constraint=False` on `projects` leaves out both foreign keys of its table; only that to projects must go.
        migrations.RunSQL(
            "ALTER TABLE access_apikey_projects ADD CONSTRAINT apikey_projects_apikey_fk FOREIGN KEY (apikey_id)"
            " REFERENCES access_apikey (id) DEFERRABLE INITIALLY DEFERRED",
            "ALTER TABLE access_apikey_projects DROP CONSTRAINT apikey_projects_apikey_fk",
        ),
    ]
