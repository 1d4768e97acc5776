"""Stands under /api/v1/."""

from django.urls import path

from apps.operations.api.artifacts import ArchiveView, ArtifactsView, ArtifactView
from apps.operations.api.branches import ExtendView, ForkView, PreviewView, WarmStartView
from apps.operations.api.bulk import BulkView
from apps.operations.api.catalogue import KindsView, RecipesView
from apps.operations.api.checkpoints import (
    CheckpointsOfView,
    CheckpointView,
    PinView,
    RecoveryView,
    UnpinView,
    VerifyView,
)
from apps.operations.api.comparisons import ComparisonView, ImportanceView
from apps.operations.api.estimates import EstimateView
from apps.operations.api.exchange import ExportView, ImportView
from apps.operations.api.groups import GroupsView
from apps.operations.api.media import MediaContentView, MediaView
from apps.operations.api.operations import (
    CancelView,
    KillView,
    OperationsView,
    OperationView,
    ResumeView,
)
from apps.operations.api.readiness import HealthView, ReadyView
from apps.operations.api.records import (
    AttemptsView,
    EventsView,
    LiveView,
    LogFileView,
    LogLinesView,
    LogsView,
    MetricsView,
    PointsFileView,
)
from apps.operations.api.run_imports import ImportRunView
from apps.operations.api.saved_views import SavedViewsView, SavedViewView
from apps.operations.api.several_metrics import SeveralMetricsView
from apps.operations.api.shares import SharesView, ShareView
from apps.operations.api.studies import (
    CancelStudyView,
    ExtendStudyView,
    KillStudyView,
    ResumeStudyView,
    StudiesView,
    StudyView,
)
from apps.operations.api.study_dimensions import StudyDimensionsView, StudyImportanceView

STUDY = "studies/<str:study_id>"
ONE = "operations/<str:operation_id>"
CHECKPOINT = "checkpoints/<str:operation_id>/<str:checkpoint_id>"

urlpatterns = [
    path("operations", OperationsView.as_view(), name="api-operations"),
    path("operations/import", ImportView.as_view(), name="api-operations-import"),
    path("operations/import-run", ImportRunView.as_view(), name="api-operations-import-run"),
    path("operations/estimate", EstimateView.as_view(), name="api-operation-estimate"),
    path("operations/compare", ComparisonView.as_view(), name="api-operations-compare"),
    path(
        "operations/compare/importance",
        ImportanceView.as_view(),
        name="api-operations-importance",
    ),
    path("operations/groups", GroupsView.as_view(), name="api-operations-groups"),
    path("operations/bulk", BulkView.as_view(), name="api-operations-bulk"),
    path("operations/metrics", SeveralMetricsView.as_view(), name="api-operations-metrics"),
    path(ONE, OperationView.as_view(), name="api-operation"),
    path(f"{ONE}/cancel", CancelView.as_view(), name="api-operation-cancel"),
    path(f"{ONE}/kill", KillView.as_view(), name="api-operation-kill"),
    path(f"{ONE}/resume", ResumeView.as_view(), name="api-operation-resume"),
    path(f"{ONE}/fork", ForkView.as_view(), name="api-operation-fork"),
    path(f"{ONE}/extend", ExtendView.as_view(), name="api-operation-extend"),
    path(f"{ONE}/warm-start", WarmStartView.as_view(), name="api-operation-warm-start"),
    path(f"{ONE}/preview", PreviewView.as_view(), name="api-operation-preview"),
    path(f"{ONE}/export", ExportView.as_view(), name="api-operation-export"),
    path(f"{ONE}/metrics", MetricsView.as_view(), name="api-operation-metrics"),
    path(f"{ONE}/metrics.csv", PointsFileView.as_view(), name="api-operation-points-file"),
    path(f"{ONE}/logs", LogsView.as_view(), name="api-operation-logs"),
    path(f"{ONE}/logs/lines", LogLinesView.as_view(), name="api-operation-log-lines"),
    path(f"{ONE}/logs.txt", LogFileView.as_view(), name="api-operation-log-file"),
    path(f"{ONE}/media", MediaView.as_view(), name="api-operation-media"),
    path(
        f"{ONE}/media/<int:media_id>",
        MediaContentView.as_view(),
        name="api-operation-media-content",
    ),
    path(f"{ONE}/events", EventsView.as_view(), name="api-operation-events"),
    path(f"{ONE}/attempts", AttemptsView.as_view(), name="api-operation-attempts"),
    path(f"{ONE}/live", LiveView.as_view(), name="api-operation-live"),
    path(f"{ONE}/recovery", RecoveryView.as_view(), name="api-operation-recovery"),
    path(f"{ONE}/archive", ArchiveView.as_view(), name="api-operation-archive"),
    path(f"{ONE}/artifacts", ArtifactsView.as_view(), name="api-operation-artifacts"),
    path(f"{ONE}/artifacts/<str:name>", ArtifactView.as_view(), name="api-operation-artifact"),
    path(
        "checkpoints/<str:operation_id>",
        CheckpointsOfView.as_view(),
        name="api-operation-checkpoints",
    ),
    path(CHECKPOINT, CheckpointView.as_view(), name="api-checkpoint"),
    path(f"{CHECKPOINT}/pin", PinView.as_view(), name="api-checkpoint-pin"),
    path(f"{CHECKPOINT}/unpin", UnpinView.as_view(), name="api-checkpoint-unpin"),
    path(f"{CHECKPOINT}/verify", VerifyView.as_view(), name="api-checkpoint-verify"),
    path("views", SavedViewsView.as_view(), name="api-views"),
    path("views/<int:view_id>", SavedViewView.as_view(), name="api-view"),
    path("studies", StudiesView.as_view(), name="api-studies"),
    path(STUDY, StudyView.as_view(), name="api-study"),
    path(f"{STUDY}/cancel", CancelStudyView.as_view(), name="api-study-cancel"),
    path(f"{STUDY}/extend", ExtendStudyView.as_view(), name="api-study-extend"),
    path(f"{STUDY}/kill", KillStudyView.as_view(), name="api-study-kill"),
    path(f"{STUDY}/resume", ResumeStudyView.as_view(), name="api-study-resume"),
    path(f"{STUDY}/dimensions", StudyDimensionsView.as_view(), name="api-study-dimensions"),
    path(f"{STUDY}/importance", StudyImportanceView.as_view(), name="api-study-importance"),
    path("shares", SharesView.as_view(), name="api-shares"),
    path("shares/<int:share_id>", ShareView.as_view(), name="api-share"),
    path("kinds", KindsView.as_view(), name="api-kinds"),
    path("recipes", RecipesView.as_view(), name="api-recipes"),
    path("health", HealthView.as_view(), name="api-health"),
    path("ready", ReadyView.as_view(), name="api-ready"),
]
