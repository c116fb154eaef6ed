"""For tests: of projects that enqueue tasks (`TasksMixin`, `capture_tasks`), and of backends (`BackendConformance`)."""

from accoda.django.testing.captured import CapturedTasks, TasksMixin, capture_tasks
from accoda.django.testing.conformance import BackendConformance

__all__ = ["BackendConformance", "CapturedTasks", "TasksMixin", "capture_tasks"]
