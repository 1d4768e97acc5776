"""Each planted forgotten state is found by name, with its remedy; complete recipes pass."""

import re

import pytest

from tests.checking import planted
from tests.thinning import some_of
from trainops.checking.check import CheckFailed, check_recipe
from trainops.checking.servers import Servers
from trainops.runtime.errors import ConfigError

pytestmark = pytest.mark.slow
FOUND = {  # category, subject, words of the problem, words of the remedy
    "counter": ("attribute", "model.seen", "plain attribute", "register_buffer"),
    "own_generator": ("generator", "noise", "random generator", "global streams"),
    "worker_numpy": ("worker_randomness", "noisy", "NumPy's global stream", "num_workers=0"),
    "scheduler": ("not_kept", "schedule", "CosineAnnealingLR", 'run.keep("schedule", schedule)'),
    "ema": ("not_kept", "average", "AveragedModel", 'run.keep("average", average)'),
    "iterable": ("iterator", "batches", "partly consumed iterator", "run.loader"),
    "sets": ("hash_order", "vocabulary", "PYTHONHASHSEED", "sorted("),
    "clock": ("clock", "salt", "the clock", "the seed"),
    "date": ("clock", "month", "the clock", "the seed"),
    "running_sum": ("local", "total", "local variable", 'sums["total"]'),
    "unseeded": ("unseeded", "salt", "Two undisturbed runs", "seed"),
    "kept_attribute": ("attribute", "pace.calls", "plain attribute", "state_dict"),
    "global_counter": ("attribute", "loop.STEPS", "changes while training", "kept"),
    "dataset_counter": ("attribute", "growing.num_read", "plain attribute", "an index"),
    "nested_sum": ("local", "number", "local variable", 'sums["number"]'),
    "cycle": ("iterator", "factors", "partly consumed iterator (cycle)", "anew"),
    "weights_dict": ("local", "average", "local variable", "run.keep"),
    "late_generator": ("generator", "model.noise", "random generator", "before the first step"),
    "epoch_scheduler": ("not_kept", "schedule", "StepLR", 'run.keep("schedule", schedule)'),
    "counted": ("iterator", "enumerate(train)", "counts from its start again", "num_taken"),
    "zipped": ("iterator", "zip(train)", "from their beginning", "run.combine"),
    "ingredients": ("attribute", "model.seen", "plain attribute", "register_buffer"),
}
NAMES = list(FOUND)


@pytest.fixture(scope="module")
def servers():
    with pytest.MonkeyPatch.context() as patch:
        paths = ",".join(f"tests.checking.planted:{name}" for name in planted.NAMES)
        patch.setenv("TRAINOPS_RECIPES", paths)
        with Servers() as running:
            yield running


def check(name, servers, **more):
    return check_recipe(
        f"forgets_{name}", servers=servers, max_steps=14, measures_cost=False, **more
    )


@pytest.mark.parametrize(
    "name",
    some_of(NAMES, every=7),
)
def test_a_forgotten_state_is_found_by_name_and_has_a_remedy(name, servers):
    category, subject, problem, remedy = FOUND[name]
    report = check(name, servers)
    found = [each for each in report.findings if each.category == category]
    assert not report.is_exact and found, str(report)
    assert any(subject in each.subject for each in found), str(report)
    assert problem in found[0].problem and remedy in found[0].remedy, str(report)
    assert len(report.findings) == 1, str(report)


def test_a_loop_that_keeps_its_state_raises_no_alarm(servers):
    report = check("nothing", servers)
    assert report.is_exact and not report.warnings and not report.uncertain, str(report)


@pytest.mark.parametrize("name", ["scaled", "lazy"])
def test_values_that_torch_makes_at_the_first_batch_are_no_finding(name, servers):
    report = check(name, servers)
    assert report.is_exact and not report.warnings, str(report)


def test_a_gradient_scaler_that_is_not_kept_is_found(servers):
    report = check("scaled", servers, config={"parameters": {"forgets": True}})
    assert not report.is_exact
    assert [(each.category, each.subject) for each in report.findings] == [("not_kept", "scaler")]


def test_a_forgotten_state_without_an_effect_so_far_is_a_warning(servers):
    report = check("epoch_scheduler", servers, config={"parameters": {"drop_epochs": 30}})
    assert report.is_exact
    assert [each.subject for each in report.warnings] == ["schedule"], str(report)
    assert "no effect on the compared steps" in str(report)


def test_what_the_job_declares_uncertain_is_reported_though_every_run_is_equal(servers):
    report = check("stream", servers)
    assert all(each.is_equal for each in report.tried), str(report)
    (why,) = report.uncertain.values()
    assert "the loader has no state" in why
    assert report.to_json()["uncertain"] == report.uncertain
    text = str(report)
    assert "Equal, but not certain: every run" in text and "Exact:" not in text
    assert "Not covered: state or randomness that no resume is certain to restore." in text
    assert f"  rows: {why}." in text


@pytest.mark.parametrize("forgets", [False, True])
def test_several_processes_are_stopped_and_resumed_together(servers, forgets):
    config = {"parameters": {"forgets": forgets}, "device": "cpu"}
    report = check("ranks", servers, config=config, processes=2)
    assert report.is_exact != forgets and not report.warnings, str(report)
    assert "forgets_ranks (loop, 2 processes): " in str(report)
    assert report.to_json()["processes"] == 2
    alone = check("ranks", servers, config=config)
    assert alone.is_exact and alone.processes == 1, str(alone)


@pytest.mark.exhaustive
def test_a_model_that_is_divided_over_processes_is_checked(servers):
    config = {"device": "cpu", "sharding": "full"}
    report = check("divided", servers, config=config, processes=2)
    assert report.is_exact and not report.warnings, str(report)
    forgetting = config | {"parameters": {"forgets": True}}
    report = check("divided", servers, config=forgetting, processes=2)
    assert not report.is_exact and report.findings, str(report)


def test_an_error_of_another_process_is_named(servers):
    config = {"parameters": {"fails_in_rank": 1}, "device": "cpu"}
    with pytest.raises(CheckFailed, match="rank 1: ValueError: planted"):
        check("ranks", servers, config=config, processes=2)


def test_of_megabytes_that_a_recipe_prints_the_beginning_and_the_end_are_kept(servers):
    report = check("printing", servers, config={"parameters": {"epochs": 2}})
    assert report.is_exact, str(report)
    with pytest.raises(CheckFailed) as failed:
        check("printing", servers, config={"parameters": {"forgets": True}})
    lines = str(failed.value).split("\n")
    assert lines[0].endswith("the process gave no result: begins here")
    assert re.fullmatch(r"\[33\d{6} bytes are left out\]", lines[2])
    assert lines[-1] == "ends here"


def test_a_kind_of_one_process_is_refused_with_several(servers):
    with pytest.raises(ConfigError, match="got 2 for a recipe of the kind training; allowed: 1"):
        check("ingredients", servers, processes=2)


def test_a_loop_is_run_to_its_end_which_it_knows_one_call_after_its_last_step(servers):
    report = check("nothing", servers, config={"parameters": {"epochs": 2}})
    assert report.is_exact and report.total_steps == 10, str(report)
