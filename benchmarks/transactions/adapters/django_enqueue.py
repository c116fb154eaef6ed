"""Enqueues Django's tasks, in an environment of its own: told by a line of JSON, then by lines "what count".

Answers each with the seconds that so many took. It knows nothing of the modules beside it.
"""

import json
import sys
import time

import django
from django.conf import settings

ORDER = json.loads(sys.stdin.readline())
settings.configure(
    DATABASES={"default": ORDER["database"]},
    TASKS={"default": ORDER["tasks"]},
    INSTALLED_APPS=ORDER["apps"],
    SECRET_KEY="of a benchmark",
    USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
)
django.setup()

import django_mail  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection, transaction  # noqa: E402


def insert() -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders (item) VALUES (%s)", ["tea"])


def enqueue() -> None:
    django_mail.send.enqueue(to="anna@example.com", subject="Hello", user=42)


def order_alone() -> None:
    with transaction.atomic():
        insert()


def order_and_task() -> None:
    with transaction.atomic():
        insert()
        enqueue()


STEPS = {"task": enqueue, "order": order_alone, "both": order_and_task}


def say(word: object) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


call_command("migrate", verbosity=0)
number = "bigserial" if connection.vendor == "postgresql" else "INTEGER"
with connection.cursor() as cursor:
    cursor.execute(f"CREATE TABLE orders (id {number} PRIMARY KEY, item text NOT NULL)")
say("ready")
for line in sys.stdin:
    what, count = line.split()
    begun = time.perf_counter()
    for _ in range(int(count)):
        STEPS[what]()
    say(time.perf_counter() - begun)
