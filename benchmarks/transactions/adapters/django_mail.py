"""The task that is enqueued. It never runs."""

try:
    from django.tasks import task
except ImportError:  # before Django 6
    from django_tasks import task


@task
def send(to: str, subject: str, user: int) -> None:
    """Send an e-mail."""
