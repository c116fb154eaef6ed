"""Accoda as the backend of Django's tasks.

TASKS = {"default": {"BACKEND": "accoda.django.AccodaBackend", "OPTIONS": {"url": "redis://localhost:6379/0"}}}
INSTALLED_APPS = [..., "accoda.django"]
"""

from accoda.django.backend import AccodaBackend
from accoda.django.project import app_of
from accoda.django.task import AccodaTask, TaskOptions, task

__all__ = ["AccodaBackend", "AccodaTask", "TaskOptions", "app_of", "task"]
