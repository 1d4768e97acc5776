"""Addresses below the page of a federated operation."""

from django.urls import path

from trainops.kinds.federated.web import downloads

urlpatterns = [path("export/<str:which>.pt", downloads.export, name="export")]
