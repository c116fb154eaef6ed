"""The shop's addresses. The jobs are below /staff/jobs/, for users who have the permission to see them."""

from django.urls import include, path

urlpatterns = [
    path("accounts/", include("django.contrib.auth.urls")),
    path("staff/jobs/", include("accoda.django.urls")),
    path("", include("shop.urls")),
]
