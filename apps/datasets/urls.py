"""Stands under /api/v1/."""

from django.urls import path

from apps.datasets.api import (
    DatasetPreviewView,
    DatasetsView,
    DatasetView,
    DirectoriesView,
    VerificationView,
)
from apps.datasets.uploads.api import FinishView, UploadsView, UploadView

urlpatterns = [
    path("datasets", DatasetsView.as_view(), name="api-datasets"),
    path("datasets/directories", DirectoriesView.as_view(), name="api-directories"),
    path("datasets/uploads", UploadsView.as_view(), name="api-uploads"),
    path("datasets/uploads/<str:upload_id>", UploadView.as_view(), name="api-upload"),
    path("datasets/uploads/<str:upload_id>/finish", FinishView.as_view(), name="api-upload-finish"),
    path("datasets/<str:dataset_id>", DatasetView.as_view(), name="api-dataset"),
    path(
        "datasets/<str:dataset_id>/preview",
        DatasetPreviewView.as_view(),
        name="api-dataset-preview",
    ),
    path("datasets/<str:dataset_id>/verify", VerificationView.as_view(), name="api-dataset-verify"),
]
