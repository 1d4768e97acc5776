"""Stands under /api/v1/."""

from django.urls import path

from apps.workers import attempt_checkpoints_api as checkpoints
from apps.workers import attempts_api as attempts
from apps.workers.api import (
    DrainView,
    HeartbeatView,
    LoadView,
    RegisterView,
    SyncView,
    UndrainView,
    WorkersView,
    WorkerView,
)
from apps.workers.statistics_api import StatisticsView
from apps.workers.usage_api import UsageView

ONE = "workers/<str:worker_id>"
ATTEMPT = f"{ONE}/attempts/<str:operation_id>/<int:attempt>"
STAGED = f"{ATTEMPT}/checkpoints/<str:directory>"

urlpatterns = [
    path("stats", StatisticsView.as_view(), name="api-stats"),
    path("usage", UsageView.as_view(), name="api-usage"),
    path("workers", WorkersView.as_view(), name="api-workers"),
    path("workers/register", RegisterView.as_view(), name="api-workers-register"),
    path(ONE, WorkerView.as_view(), name="api-worker"),
    path(f"{ONE}/heartbeat", HeartbeatView.as_view(), name="api-worker-heartbeat"),
    path(f"{ONE}/load", LoadView.as_view(), name="api-worker-load"),
    path(f"{ONE}/sync", SyncView.as_view(), name="api-worker-sync"),
    path(f"{ONE}/claim", attempts.ClaimView.as_view(), name="api-worker-claim"),
    path(f"{ATTEMPT}/restored", attempts.RestoredView.as_view(), name="api-attempt-restored"),
    path(f"{ATTEMPT}/progress", attempts.ProgressView.as_view(), name="api-attempt-progress"),
    path(f"{ATTEMPT}/media", attempts.AttemptMediaView.as_view(), name="api-attempt-media"),
    path(f"{ATTEMPT}/ledger", attempts.LedgerView.as_view(), name="api-attempt-ledger"),
    path(f"{ATTEMPT}/spending", attempts.SpendingView.as_view(), name="api-attempt-spending"),
    path(f"{ATTEMPT}/damaged", checkpoints.DamagedView.as_view(), name="api-attempt-damaged"),
    path(f"{ATTEMPT}/end", attempts.EndView.as_view(), name="api-attempt-end"),
    path(f"{ATTEMPT}/inputs/<str:name>", attempts.InputView.as_view(), name="api-attempt-input"),
    path(
        f"{ATTEMPT}/files/<str:checkpoint_id>/<str:name>",
        checkpoints.ReadFileView.as_view(),
        name="api-attempt-file",
    ),
    path(
        f"{ATTEMPT}/checkpoints",
        checkpoints.OpenCheckpointView.as_view(),
        name="api-attempt-checkpoints",
    ),
    path(f"{STAGED}/commit", checkpoints.CommitView.as_view(), name="api-attempt-commit"),
    path(
        f"{STAGED}/files/<str:name>", checkpoints.SendFileView.as_view(), name="api-attempt-staged"
    ),
    path(f"{ONE}/drain", DrainView.as_view(), name="api-worker-drain"),
    path(f"{ONE}/undrain", UndrainView.as_view(), name="api-worker-undrain"),
]
