"""Moments of the database and parameters: SQLite compares both as texts."""

from itertools import count

import pytest

from trainops.clock import DatabaseNow
from trainops.http.models import RecentCount


@pytest.mark.django_db
def test_a_moment_is_equal_to_itself_also_at_a_whole_second():
    row = RecentCount.objects.create(pk="a", expires_at=DatabaseNow())
    for number in count():
        RecentCount.objects.update(expires_at=DatabaseNow())
        row.refresh_from_db()
        assert RecentCount.objects.filter(expires_at=row.expires_at).exists()
        assert not RecentCount.objects.filter(expires_at__gt=row.expires_at).exists()
        if not row.expires_at.microsecond or number == 100_000:
            break
    assert not row.expires_at.microsecond
