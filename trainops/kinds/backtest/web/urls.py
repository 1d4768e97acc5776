"""Addresses below the page of a backtest."""

from django.urls import path

from trainops.kinds.backtest.web import downloads

urlpatterns = [path("report.<str:form>", downloads.download, name="report")]
