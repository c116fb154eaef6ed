"""`create_service`: the HTTP API and the dashboard of an app as one ASGI application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from accoda.http.options import ServiceOptions

if TYPE_CHECKING:
    from accoda.app import App

DEFAULTS = ServiceOptions()


def create_service(app: App, options: ServiceOptions = DEFAULTS) -> Any:
    """An ASGI application that serves the app's jobs: for uvicorn, or to be mounted in another application.

    Its lifespan opens the store and runs system jobs (unless `system_jobs` is False), and closes both.
    """
    from accoda.http.extra import require

    require()
    from accoda.dashboard.mount import mount
    from accoda.http.service import Service
    from accoda.http.table import operations

    service = Service(app, options, operations(), mount if options.dashboard else None)
    if options.policy is None:
        return service
    from accoda.http.security.guard import Guard

    guard = Guard(service, options.policy)
    service.meet(guard)
    return guard
