"""Stands under /api/v1/."""

from django.urls import path

from apps.datasets.api import DatasetPreviewView, DatasetsView, DatasetView

urlpatterns = [
    path("datasets", DatasetsView.as_view(), name="api-datasets"),
    path("datasets/<str:dataset_id>", DatasetView.as_view(), name="api-dataset"),
    path(
        "datasets/<str:dataset_id>/preview",
        DatasetPreviewView.as_view(),
        name="api-dataset-preview",
    ),
]
