"""Refresh tokens name their consent, so that spent ones need not be stored."""

from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('access', '0006_who_changed_something_lately'),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.RemoveIndex(
            model_name='appgrant',
            name='appgrant_used_refresh_idx',
        ),
        migrations.RemoveField(
            model_name='appgrant',
            name='used_refresh_hash',
        ),
    ]
