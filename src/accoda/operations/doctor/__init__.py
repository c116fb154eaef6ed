"""Examines a deployment and says what to change; changes nothing itself. See docs/doctor.md."""

from accoda.operations.doctor.examine import examine
from accoda.operations.doctor.findings import Finding, Level, worst

__all__ = ["Finding", "Level", "examine", "worst"]
