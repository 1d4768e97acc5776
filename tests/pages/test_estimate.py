"""What Submit would do, as the form of a new operation shows it."""

from datetime import timedelta

import pytest

from apps.operations.models import Share
from apps.operations.requests import estimates
from apps.workers.models import Worker
from tests.pages import making
from tests.pages.test_new_file import FILE, entered
from trainops.recipes import recipes
from trainops.runtime.errors import ConfigError

pytestmark = pytest.mark.usefixtures("in_process")


def shown(page, data):
    return " ".join(page.post("/operations/new/estimate", data).content.decode().split())


def completed(owner, seconds, size, **fields):
    made = making.operation(owner, "COMPLETED")
    ended = made.started_at + timedelta(seconds=seconds)
    made.row.update(finished_at=ended, checkpoint_bytes=size, **fields)
    return made


def test_time_and_size_are_medians_of_earlier_runs(ana):
    for seconds, size in ((10, 1000), (20, 3000), (90, 2000)):
        completed(ana, seconds, size)
    completed(ana, 9999, 9999, attempt=2)  # interrupted
    completed(ana, 9999, 9999, recipe="tabular")
    making.operation(ana, "FAILED")
    config = {**recipes()["digits"].example, "epochs": 10}  # the earlier ones had 5
    found = estimates.estimate(kind="training", config=config, owner=ana)
    assert (found.num_earlier, found.seconds, found.checkpoint_bytes) == (3, 40, 2000)


def test_without_an_earlier_run_nothing_is_estimated(page, ana):
    assert "No earlier run of this recipe" in shown(page, entered(page))
    config = recipes()["digits"].example
    assert estimates.estimate(kind="training", config=config, owner=ana).seconds is None


def test_a_config_with_problems_has_no_estimate(page, ana):
    with pytest.raises(ConfigError, match="allowed: training"):
        estimates.estimate(kind="baking", config={}, owner=ana)
    text = shown(page, entered(page, **{"config.epochs": "many"}))
    assert "1 field to correct: epochs: got &#x27;many&#x27;" in text


def test_the_page_says_where_it_would_run(page, ana):
    assert "No worker is running." in shown(page, entered(page))
    Worker.objects.create(worker_id="w-1", kinds=["training"], slots=1)
    completed(ana, 60, 2_000_000)
    text = shown(page, entered(page, **{"config.epochs": "10"}))
    assert "Can start now on w-1." in text
    assert "About 2 min, checkpoints of 2 MB (median of 1 earlier run)." in text
    assert "No worker has the label a100" in shown(page, entered(page, queue="a100"))
    Share.objects.create(project="vision", max_slots=0)
    text = shown(page, entered(page, project="vision"))
    assert "Needs more than its share: project vision may use 0 slots at once" in text
    assert "Can start now on w-1." in shown(page, {"yaml": FILE})


def test_a_run_again_says_what_differs(page, ana):
    source = making.operation(ana, "COMPLETED", name="the first")
    address = f"/operations/new?from={source.pk}"
    fields = page.get(address).context["form"].fields
    data = {f"config.{each.path}": str(each.text) for each in fields if each.text}
    data |= {"recipe": "digits", "from": source.pk}
    assert "No field differs from the first." in shown(page, data)
    text = shown(page, data | {"config.epochs": "9"})
    assert "Differs from the first:" in text and "<code>epochs</code> 5 → 9" in text
    assert text.count("<code>") == 1
