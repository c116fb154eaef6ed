from django.contrib.auth.models import User
from django.test import TestCase
from jobs import app, sign_up, welcome


class SignUpTests(TestCase):
    def setUp(self) -> None:
        self.jobs = self.enterContext(app.testing())

    def test_a_new_user_is_welcomed(self) -> None:
        sign_up("anna")
        self.jobs.assert_enqueued(welcome, "anna")
        self.jobs.sync.drain()
        self.jobs.assert_no_failures()
        self.assertEqual(User.objects.get(username="anna").first_name, "Anna")

    def test_a_new_user_is_welcomed_at_once(self) -> None:
        self.jobs.inline = True
        sign_up("anna")
        self.assertEqual(User.objects.get(username="anna").first_name, "Anna")
