"""By how much the clock of this machine differs from the database's."""

import time
from collections.abc import Callable

from django.db.models import DateTimeField, ExpressionWrapper

from apps.operations.models import Subscription
from trainops.clock import DatabaseNow


def seconds(clock: Callable[[], float] = time.time) -> float:
    """Return how far this clock is ahead; negative: behind. Half of the query's time is left out.

    0.0 while there is no row to ask with.
    """
    before = clock()
    moment = ExpressionWrapper(DatabaseNow(), output_field=DateTimeField())
    found = Subscription.objects.annotate(moment=moment).values_list("moment", flat=True).first()
    after = clock()
    return (before + after) / 2 - found.timestamp() if found else 0.0
