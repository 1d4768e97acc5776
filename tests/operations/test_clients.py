"""A distributed round: clients that are operations of their own, found, dropped, and let go."""

import os
import signal

import pytest

from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.operations import clients, services, work
from apps.operations.errors import NotAllowed
from apps.operations.models import Attempt, ClientPart, Operation
from tests.operations.attempts import Running, run
from tests.operations.distributed import (
    PRIVACY,
    Round,
    curve,
    final,
    ledger,
    result,
    run_distributed,
    submit,
)
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _storage_of_its_own(settings, tmp_path):
    settings.CHECKPOINT_ROOT = tmp_path / "checkpoints"


def require_same(done, whole):
    assert done.state == "COMPLETED", done.error
    assert final(done) == final(whole) and curve(done) == curve(whole)
    assert result(done) == result(whole) and ledger(done) == ledger(whole)


@pytest.mark.parametrize("mode", PRIVACY)
@pytest.mark.parametrize("strategy", ["fedavg", "fedyogi"])
def test_clients_elsewhere_come_to_the_same_bits(house, mode, strategy):
    server = {"strategy": strategy}
    whole = run(house, submit(mode=mode, server=server, placement="in_process"))
    assert whole.state == "COMPLETED", whole.error
    done = run_distributed(house, submit(mode=mode, server=server))
    require_same(done, whole)
    assert Attempt.objects.exclude(operation__in=[whole.pk, done.pk]).count() == 0
    assert not ClientPart.objects.exists(), "nothing of its clients is left"
    assert set(Checkpoint.objects.values_list("operation_id", flat=True)) == {whole.pk, done.pk}


def test_debug(house):
    done = run_distributed(house, submit())
    for each in done.events.all():
        print(each.what, each.note)
