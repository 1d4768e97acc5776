"""What is not certain to be exact is said before an attempt computes its first step."""

import pytest

from apps.operations.models import LogChunk
from apps.operations.requests import services
from tests.operations.attempts import run

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
WHY = "the loader has no state, so a resume reads its batches again"


@pytest.fixture(autouse=True)
def _storage_of_its_own(settings, tmp_path):
    settings.CHECKPOINT_ROOT = tmp_path / "checkpoints"


def ended(runtime, person, iterable):
    config = {
        "recipe": "pair", "threads": 1, "parameters": {"iterable": iterable},
        "limits": {"max_duration": "3ba"},
    }  # fmt: skip
    return run(runtime, services.submit(kind="loop", config=config, owner=person))


def log_of(operation):
    return "".join(LogChunk.objects.filter(operation=operation).values_list("text", flat=True))


def test_a_loader_without_a_state_is_named_at_the_first_start(runtime, person):
    operation = ended(runtime, person, "plain")
    assert operation.state == "COMPLETED", operation.error
    (why,) = operation.attempts.get().receipt["uncertain"].values()
    assert WHY in why
    lines = log_of(operation).splitlines()
    start = next(at for at, line in enumerate(lines) if "started from the beginning" in line)
    assert "WARNING a resume may not be exact: " in lines[start + 1] and WHY in lines[start + 1]
    assert not any("step 1" in line for line in lines[: start + 1])


def test_of_a_dataset_with_a_state_nothing_is_said(runtime, person):
    operation = ended(runtime, person, "stateful")
    assert operation.state == "COMPLETED", operation.error
    assert "uncertain" not in operation.attempts.get().receipt
    assert "may not be exact" not in log_of(operation)
