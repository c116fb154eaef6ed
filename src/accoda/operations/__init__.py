"""What people see and do: the command line, the HTTP API and the dashboard call this, and never a storage directly.

    jobs · flows · queues · lanes · bulk · failure_groups · workers · schedules · webhooks · budgets · demands ·
    overview · why · history · doctor

Every function takes a `Host` first (its store, its handlers, its budgets) and gives records for people: names in
camelCase on the wire, moments as RFC 3339 text, secrets hidden. Errors are `AccodaError`s that name the wire's field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accoda.operations.host import Host
    from accoda.runtime.system_jobs import SystemJob


def system_jobs(host: Host) -> list[SystemJob]:
    """The system jobs of operations: bulk changes, and the recorder of history."""
    from accoda.operations.bulk import bulk_runner
    from accoda.operations.history.recorder import recorder

    return [bulk_runner(host), recorder(host)]
