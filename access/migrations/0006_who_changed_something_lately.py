"""Indexes of who changed something lately, and the rights of who may have a stored reply."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('access', '0005_apps_that_act_for_people'),
        ('memories', '0003_memory_updated_idx'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name='idempotentreply',
            name='rights',
            field=models.JSONField(default=dict, help_text='The scopes and projects that the credential had.'),
        ),
        migrations.AlterField(
            model_name='auditevent',
            name='api_key',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='access.apikey'),
        ),
        migrations.AlterField(
            model_name='auditevent',
            name='user',
            field=models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddIndex(
            model_name='auditevent',
            index=models.Index(fields=['user', '-at'], name='auditevent_user_idx'),
        ),
        migrations.AddIndex(
            model_name='auditevent',
            index=models.Index(fields=['api_key', '-at'], name='auditevent_key_idx'),
        ),
    ]
