"""The dashboard and the API below a prefix: `path("jobs/", include("accoda.django.urls"))`.

Of another backend than the default one: `path("other-jobs/", include(patterns("other")))`.
"""

from __future__ import annotations

from django.urls import URLPattern, re_path

from accoda.django.views import jobs


def patterns(backend: str) -> list[URLPattern]:
    """The one pattern that leads to the service of a backend."""
    return [re_path(r"^(?P<path>.*)$", jobs, {"backend": backend}, name="accoda-jobs")]


urlpatterns = patterns("default")
