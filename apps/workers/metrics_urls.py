"""Stands at the root."""

from django.urls import path

from apps.workers.metrics_view import metrics_page

urlpatterns = [path("metrics", metrics_page, name="metrics")]
