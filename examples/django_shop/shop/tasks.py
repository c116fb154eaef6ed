"""What workers do: `python manage.py accoda worker`."""

from django.core.mail import send_mail
from django.db import transaction

from accoda.django import task
from shop.models import Order


@task(key="pack-{order}", timeout=60)
def pack(order: int) -> str:
    """Pack an order, and have the customer told about it: in one transaction, so that both or neither happen."""
    with transaction.atomic():
        found = Order.objects.select_related("product", "customer").get(pk=order)
        found.parcel = f"{found.customer.get_username()}-{found.product.name}-{found.pk}"
        found.save(update_fields=["parcel"])
        announce.enqueue(order)
    return found.parcel


@task(queue_name="mail", max_attempts=10, retry=30)
def announce(order: int) -> None:
    """Tell the customer. Mail servers are away now and then, so it is tried ten times."""
    found = Order.objects.select_related("customer").get(pk=order)
    send_mail(f"Your order {order}", f"Parcel {found.parcel} is on its way.", None, [found.customer.email])
