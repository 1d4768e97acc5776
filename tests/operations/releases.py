"""The ledger of federated operations, in releases."""

from apps.ledger import services
from apps.ledger.models import LedgerEntry
from trainops.kinds.federated.releases import FIELDS, Release


def append(operation_id, attempt, releases):
    services.append(operation_id, attempt, [each.to_entry() for each in releases], FIELDS)


def spent_by(operation_id):
    return [Release.from_entry(each) for each in services.entries_of(operation_id, FIELDS)]


def spent_in(operation_id, number, client):
    found = services.entries_where(operation_id, FIELDS, group=number, index=client)
    return [Release.from_entry(each) for each in found]


def verify(operation_id):
    services.verify(operation_id, FIELDS)


def rows_of(operation_id, names):
    """Return these values of each release, as the rows have them."""
    found = LedgerEntry.objects.filter(operation_id=operation_id)
    flat = ({"noise": each.identity, "step": each.step, **each.values} for each in found)
    return [tuple(each[name] for name in names) for each in flat]
