"""How orders are placed."""

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F

from shop.models import Order, Product
from shop.tasks import pack


class SoldOut(Exception):
    """There is none left of a product."""


@transaction.atomic
def place_order(customer: User, product: Product) -> Order:
    """Store the order, the task that packs it, and what is left on the shelf: all of it, or nothing."""
    order = Order.objects.create(customer=customer, product=product)
    order.task = pack.enqueue(order.pk).id
    order.save(update_fields=["task"])
    if not Product.objects.filter(pk=product.pk, stock__gt=0).update(stock=F("stock") - 1):
        raise SoldOut(product.name)
    return order
