"""Periodic jobs that one process at a time runs; a row holds the time of the last run.

A scheduler that counts from its own start never comes to a daily job where it lives for less than
a day.
"""

from datetime import timedelta

from django.db.models import Q

from apps.installation.models import PeriodicJob
from trainops.clock import DatabaseNow


def claim(name: str, *, every: timedelta) -> bool:
    """Whether the job is due, and this call is the one that runs it."""
    PeriodicJob.objects.get_or_create(pk=name)
    due = Q(last_run_at=None) | Q(last_run_at__lte=DatabaseNow() - every)
    return bool(PeriodicJob.objects.filter(due, pk=name).update(last_run_at=DatabaseNow()))


def retry(name: str, *, every: timedelta, after: timedelta) -> None:
    """Make a job that failed due again sooner than after a whole period."""
    PeriodicJob.objects.filter(pk=name).update(last_run_at=DatabaseNow() - every + after)
