from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('explorer', '0002_site_restarts'),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.DeleteModel(
            name='SiteSample',
        ),
    ]
