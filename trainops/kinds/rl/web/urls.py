"""Addresses below the page of a reinforcement learning operation."""

from django.urls import path

from trainops.kinds.rl.web import downloads

urlpatterns = [
    path("recordings/<int:step>", downloads.recording, name="operation-recording"),
    path("agents/<str:checkpoint_id>.zip", downloads.export, name="export-agents"),
]
