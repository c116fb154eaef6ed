import unittest

from shop.jobs import Order, app, confirm, mail, price


class OrderTests(unittest.TestCase):
    def setUp(self) -> None:
        self.jobs = self.enterContext(app.testing())

    def test_a_confirmation_is_an_email(self) -> None:
        confirm.sync.enqueue(Order(17, "tea"))
        self.jobs.sync.drain()
        self.assertEqual(mail.sent, [("anna@example.com", "Order 17")])

    def test_a_result_inline(self) -> None:
        self.jobs.inline = True
        self.assertEqual(price.sync.enqueue("tea").result(), 450)
