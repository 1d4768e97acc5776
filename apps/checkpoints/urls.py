"""Stands under /api/v1/."""

from django.urls import path

from apps.checkpoints.api import CheckpointsView, CleanUpView

urlpatterns = [
    path("checkpoints", CheckpointsView.as_view(), name="api-checkpoints"),
    path("checkpoints/cleanup", CleanUpView.as_view(), name="api-checkpoints-cleanup"),
]
