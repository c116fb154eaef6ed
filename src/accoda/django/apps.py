"""The Django app: `INSTALLED_APPS = [..., "accoda.django"]`."""

from django.apps import AppConfig


class AccodaConfig(AppConfig):
    """Registers the checks, and brings the migration of the outbox and the permissions of the dashboard."""

    name = "accoda.django"
    label = "accoda"
    verbose_name = "Accoda"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from accoda.django import checks  # noqa: F401 - registers itself
