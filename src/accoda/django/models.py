"""The permissions of the dashboard. There is no table: jobs are in Accoda's store."""

from django.db import models


class Jobs(models.Model):
    """Carries `accoda.view_jobs` and `accoda.change_jobs`."""

    class Meta:
        managed = False
        default_permissions = ()
        permissions = (("view_jobs", "Can see jobs"), ("change_jobs", "Can change jobs"))
        verbose_name = verbose_name_plural = "jobs"
