"""The outbox table, and the permissions of the dashboard."""

from typing import Any

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from accoda.transactions.outbox import outbox_schema


def make_outbox(apps: Any, editor: BaseDatabaseSchemaEditor) -> None:
    """Make the table where it can be used: elsewhere tasks are enqueued after the commit."""
    vendor = editor.connection.vendor
    if vendor in ("postgresql", "sqlite"):
        schema = outbox_schema("postgresql" if vendor == "postgresql" else "sqlite")
        for statement in editor.connection.ops.prepare_sql_script(schema):
            editor.execute(statement, None)  # no parameters: a % in it is one


def drop_outbox(apps: Any, editor: BaseDatabaseSchemaEditor) -> None:
    if editor.connection.vendor in ("postgresql", "sqlite"):
        editor.execute("DROP TABLE IF EXISTS accoda_outbox")


class Migration(migrations.Migration):
    initial = True
    operations = (
        migrations.CreateModel(
            name="Jobs",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"))
            ],
            options={
                "verbose_name": "jobs",
                "verbose_name_plural": "jobs",
                "permissions": (("view_jobs", "Can see jobs"), ("change_jobs", "Can change jobs")),
                "managed": False,
                "default_permissions": (),
            },
        ),
        migrations.RunPython(make_outbox, drop_outbox),
    )
