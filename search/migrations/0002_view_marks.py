"""Pins and defaults of saved views belong to each person, not to the view, which also has its presentation."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


def marks_of_owners(apps, schema_editor):
    database = schema_editor.connection.alias
    views = apps.get_model("search", "SavedView").objects.using(database)
    marks = apps.get_model("search", "ViewMark").objects.using(database)
    defaults = set()
    for view in views.filter(models.Q(pinned=True) | models.Q(is_default=True)).order_by("id"):
        is_default = view.is_default and view.owner_id not in defaults
        defaults |= {view.owner_id} if is_default else set()
        marks.create(user_id=view.owner_id, view=view, pinned=view.pinned, is_default=is_default)


class Migration(migrations.Migration):

    dependencies = [
        ('search', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.CreateModel(
            name='ViewMark',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('pinned', models.BooleanField(default=False)),
                ('is_default', models.BooleanField(default=False)),
                ('opened_at', models.DateTimeField(blank=True, null=True)),
                ('user', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('view', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='marks', to='search.savedview')),
            ],
            options={
                'constraints': [
                    models.UniqueConstraint(fields=('user', 'view'), name='viewmark_user_view_unique'),
                    models.UniqueConstraint(condition=models.Q(('is_default', True)), fields=('user',), name='viewmark_one_default'),
                ],
            },
        ),
        migrations.AddField(
            model_name='savedview',
            name='presentation',
            field=models.TextField(blank=True, db_default='', default='', help_text='How a page shows it, as a query string.'),
        ),
        migrations.RunPython(marks_of_owners, migrations.RunPython.noop),
        # Deferred checks of the rows above would keep the table from being altered.
        migrations.RunSQL("SET CONSTRAINTS ALL IMMEDIATE", migrations.RunSQL.noop),
        migrations.RemoveField(model_name='savedview', name='pinned'),
        migrations.RemoveField(model_name='savedview', name='is_default'),
        migrations.RemoveField(model_name='savedview', name='watched'),
    ]
