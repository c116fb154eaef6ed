"""What the shop sells from the start."""

from typing import Any

from django.db import migrations

SHELF = {"cup": 100, "kettle": 1, "tea": 100}


def fill(apps: Any, editor: Any) -> None:
    """Put the products on the shelf."""
    product = apps.get_model("shop", "Product")
    product.objects.bulk_create([product(name=name, stock=stock) for name, stock in SHELF.items()])


class Migration(migrations.Migration):
    dependencies = (("shop", "0001_initial"),)
    operations = (migrations.RunPython(fill, migrations.RunPython.noop),)
