"""What a receipt says about the circumstances of a run, and what `exact: required` refuses."""

import pytest

from tests.engines.contract import ScriptedSupervisor
from tests.engines.counting import CountingJob
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.store import CheckpointPolicy, CheckpointStore
from trainops.runtime.errors import NotExact
from trainops.runtime.loop import Failed, Succeeded, run
from trainops.runtime.receipt import MATTERS, compare_environments


def on(device_type, *, deterministic):
    return reproducibility.environment() | {
        "device_type": device_type, "deterministic": deterministic
    }  # fmt: skip


@pytest.mark.parametrize(
    ("device_type", "deterministic", "is_exact"),
    [("cuda", True, True), ("cuda", False, False), ("cpu", True, True), ("cpu", False, True)],
)
def test_sums_of_a_gpu_are_exact_with_deterministic_algorithms_only(
    device_type, deterministic, is_exact
):
    environment = on(device_type, deterministic=deterministic)
    items = {each.part: each for each in compare_environments(environment, environment)}
    assert items[MATTERS["deterministic"]].exact == is_exact
    assert all(each.exact for part, each in items.items() if part != MATTERS["deterministic"])


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_run_whose_sums_vary_is_refused_where_exact_is_required(
    monkeypatch, tmp_path, deterministic
):
    environment = on("cuda", deterministic=deterministic)
    monkeypatch.setattr(reproducibility, "environment", lambda: environment)
    store, policy = CheckpointStore(tmp_path, identity={}), CheckpointPolicy(every_steps=100)
    outcome = run(
        CountingJob, seed=0, store=store, policy=policy, supervisor=ScriptedSupervisor(),
        requires_exact=True,
    )  # fmt: skip
    if deterministic:
        assert isinstance(outcome, Succeeded), outcome
    else:
        assert isinstance(outcome, Failed) and isinstance(outcome.error, NotExact), outcome
        assert "allowed: deterministic: true" in str(outcome.error)


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_run_whose_sums_vary_is_uncertain_at_its_first_start(
    monkeypatch, tmp_path, deterministic
):
    environment = on("cuda", deterministic=deterministic)
    monkeypatch.setattr(reproducibility, "environment", lambda: environment)
    store, policy = CheckpointStore(tmp_path, identity={}), CheckpointPolicy(every_steps=100)
    supervisor = ScriptedSupervisor()
    outcome = run(CountingJob, seed=0, store=store, policy=policy, supervisor=supervisor)
    assert isinstance(outcome, Succeeded), outcome
    (receipt,) = supervisor.receipts
    assert list(receipt.uncertain) == ([] if deterministic else [MATTERS["deterministic"]])
    assert receipt.exact and ("uncertain" in receipt.to_json()) == (not deterministic)
