"""Sessions in the database, which Django itself never deletes after they have expired."""

from django.contrib.sessions.models import Session

from trainops.clock import DatabaseNow

BATCH = 1000


def forget_expired() -> int:
    """Delete the sessions that have expired; return how many there were."""
    num, expired = 0, Session.objects.filter(expire_date__lte=DatabaseNow())
    while keys := list(expired.values_list("pk", flat=True)[:BATCH]):
        num += expired.filter(pk__in=keys).delete()[0]
    return num
