"""The addresses of the pages."""

from django.urls import path

from shop import views

urlpatterns = [
    path("", views.orders, name="orders"),
    path("orders/<int:pk>/", views.order, name="order"),
]
