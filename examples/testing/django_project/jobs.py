from django.contrib.auth.models import User
from django.db import connection, transaction

from accoda import App

app = App("postgresql://localhost/shop")


@app.handler("welcome", keep_for=60)
def welcome(name: str) -> str:
    user = User.objects.get(username=name)
    user.first_name = name.title()
    user.save()
    return user.first_name


def sign_up(name: str) -> None:
    """What a view does: the user and the job are stored together, or not at all."""
    with transaction.atomic():
        User.objects.create_user(name)
        welcome.sync.enqueue(name, connection=connection)
