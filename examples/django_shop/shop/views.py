"""The pages of the shop."""

from contextlib import suppress
from typing import Any, TypeAlias

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from accoda.django.compat import TaskResultDoesNotExist
from shop.models import Order, Product
from shop.orders import SoldOut, place_order
from shop.tasks import pack

Context: TypeAlias = dict[str, Any]


def customer_of(request: HttpRequest) -> User:
    """Who is logged in: `login_required` saw to it."""
    assert isinstance(request.user, User)
    return request.user


@login_required
@require_http_methods(["GET", "POST"])
def orders(request: HttpRequest) -> HttpResponse:
    """What the customer ordered, and a form for more."""
    customer, message = customer_of(request), ""
    if request.method == "POST":
        product = get_object_or_404(Product, name=request.POST.get("product", ""))
        try:
            return redirect("order", place_order(customer, product).pk)
        except SoldOut as error:
            message = f"{error} is sold out"
    context: Context = {
        "orders": Order.objects.filter(customer=customer).select_related("product").order_by("-pk"),
        "products": Product.objects.order_by("name"),
        "message": message,
    }
    return render(request, "shop/orders.html", context, status=409 if message else 200)


@login_required
@require_GET
def order(request: HttpRequest, pk: int) -> HttpResponse:
    """One order, and how far its task is."""
    found = get_object_or_404(Order.objects.select_related("product"), pk=pk, customer=customer_of(request))
    context: Context = {"order": found, "result": None}
    with suppress(TaskResultDoesNotExist):  # results are kept for a day; orders stay
        context["result"] = pack.get_result(found.task)
    return render(request, "shop/order.html", context)
