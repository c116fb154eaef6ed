"""Products and orders."""

from django.conf import settings
from django.db import migrations, models
from django.db.models.deletion import CASCADE, PROTECT


class Migration(migrations.Migration):
    initial = True
    dependencies = (migrations.swappable_dependency(settings.AUTH_USER_MODEL),)
    operations = (
        migrations.CreateModel(
            "Product",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=50, unique=True)),
                ("stock", models.PositiveIntegerField()),
            ],
        ),
        migrations.CreateModel(
            "Order",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("ordered_at", models.DateTimeField(auto_now_add=True)),
                ("task", models.CharField(default="", max_length=64)),
                ("parcel", models.CharField(default="", max_length=100)),
                ("customer", models.ForeignKey(on_delete=CASCADE, to=settings.AUTH_USER_MODEL)),
                ("product", models.ForeignKey(on_delete=PROTECT, to="shop.product")),
            ],
        ),
    )
