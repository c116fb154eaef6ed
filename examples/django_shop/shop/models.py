"""What is sold, and who ordered it."""

from django.conf import settings
from django.db import models


class Product(models.Model):
    """A thing on the shelf."""

    name = models.CharField(max_length=50, unique=True)
    stock = models.PositiveIntegerField()

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    """One piece of a product. `task` is the id of the task that packs it."""

    customer = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    product = models.ForeignKey(Product, on_delete=models.PROTECT)
    ordered_at = models.DateTimeField(auto_now_add=True)
    task = models.CharField(max_length=64, default="")
    parcel = models.CharField(max_length=100, default="")

    def __str__(self) -> str:
        return f"order {self.pk}"
