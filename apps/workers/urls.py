"""Stands under /api/v1/."""

from django.urls import path

from apps.workers.api import (
    DrainView,
    HeartbeatView,
    RegisterView,
    SyncView,
    UndrainView,
    WorkersView,
    WorkerView,
)

ONE = "workers/<str:worker_id>"

urlpatterns = [
    path("workers", WorkersView.as_view(), name="api-workers"),
    path("workers/register", RegisterView.as_view(), name="api-workers-register"),
    path(ONE, WorkerView.as_view(), name="api-worker"),
    path(f"{ONE}/heartbeat", HeartbeatView.as_view(), name="api-worker-heartbeat"),
    path(f"{ONE}/sync", SyncView.as_view(), name="api-worker-sync"),
    path(f"{ONE}/drain", DrainView.as_view(), name="api-worker-drain"),
    path(f"{ONE}/undrain", UndrainView.as_view(), name="api-worker-undrain"),
]
