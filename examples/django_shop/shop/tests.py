"""The shop's own tests: `python manage.py test`. They need no worker."""

from unittest import mock

from django.contrib.auth.models import User
from django.core import mail
from django.test import TestCase

from accoda.django.testing import TasksMixin
from shop.models import Order, Product
from shop.orders import SoldOut, place_order
from shop.tasks import announce, pack


class OrderTests(TasksMixin, TestCase):
    """Orders, and the tasks that they lead to."""

    def setUp(self) -> None:
        super().setUp()
        self.anna = User.objects.create_user("anna", "anna@example.com", "a-cup-of-tea")
        self.tea = Product.objects.get(name="tea")

    def test_an_order_is_packed_and_announced(self) -> None:
        order = place_order(self.anna, self.tea)
        self.tasks.assert_enqueued(pack, order.pk)
        self.tasks.run()
        self.tasks.assert_no_failures()
        order.refresh_from_db()
        self.assertEqual(order.parcel, f"anna-tea-{order.pk}")
        self.assertEqual(
            [(one.to, one.subject) for one in mail.outbox], [(["anna@example.com"], f"Your order {order.pk}")]
        )

    def test_a_product_that_is_sold_out_leaves_no_order_and_no_task(self) -> None:
        Product.objects.filter(name="tea").update(stock=0)
        with self.assertRaises(SoldOut):
            place_order(self.anna, self.tea)
        self.tasks.assert_none()
        self.assertEqual(Order.objects.count(), 0)

    def test_the_page_shows_the_parcel(self) -> None:
        self.client.force_login(self.anna)
        page = self.client.post("/", {"product": "tea"}, follow=True)
        self.assertContains(page, "READY")
        self.tasks.run()
        page = self.client.get(page.wsgi_request.path)
        self.assertContains(page, "SUCCESSFUL")
        self.assertContains(page, "anna-tea-")

    def test_the_email_is_tried_again_when_the_mail_server_is_away(self) -> None:
        order = place_order(self.anna, self.tea)
        with mock.patch("shop.tasks.send_mail", side_effect=OSError("no mail server")):
            self.tasks.run()
        self.assertEqual(mail.outbox, [])
        (result,) = self.tasks.of(announce)
        self.assertEqual((str(result.status), result.attempts), ("READY", 1))
        self.tasks.advance(seconds=31)
        self.tasks.run()
        self.assertEqual([one.subject for one in mail.outbox], [f"Your order {order.pk}"])
