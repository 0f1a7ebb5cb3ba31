"""Apps act for people, by OAuth: the consents, and the keys that the apps renew."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('access', '0004_roles_and_invitations'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name='apikey',
            name='acts_for',
            field=models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='apps', to=settings.AUTH_USER_MODEL),
        ),
        migrations.CreateModel(
            name='AppGrant',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('client_id', models.TextField()),
                ('resource', models.TextField(blank=True)),
                ('redirect_uri', models.TextField()),
                ('is_redirect_given', models.BooleanField()),
                ('code_hash', models.CharField(max_length=64)),
                ('code_challenge', models.CharField(max_length=200)),
                ('code_expires_at', models.DateTimeField()),
                ('code_used_at', models.DateTimeField(blank=True, null=True)),
                ('access_expires_at', models.DateTimeField(blank=True, null=True)),
                ('refresh_hash', models.CharField(blank=True, max_length=64)),
                ('used_refresh_hash', models.CharField(blank=True, max_length=64)),
                ('key', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='grant', to='access.apikey')),
            ],
            options={
                'indexes': [models.Index(fields=['code_hash'], name='appgrant_code_idx'), models.Index(fields=['refresh_hash'], name='appgrant_refresh_idx'), models.Index(fields=['used_refresh_hash'], name='appgrant_used_refresh_idx')],
            },
        ),
    ]
