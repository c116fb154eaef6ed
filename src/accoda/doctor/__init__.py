"""Looks at a deployment and says what to change; changes nothing itself. See docs/doctor.md."""

from accoda.doctor.examine import examine
from accoda.doctor.findings import Finding, Level, worst

__all__ = ["Finding", "Level", "examine", "worst"]
