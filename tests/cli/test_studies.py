"""Studies on the command line."""

import json

import pytest

from apps.operations.models import Operation, Study
from tests.api.saved import CHANGED, CHANGED_FILE, saved
from trainops.client.problems import ExitCode

pytestmark = pytest.mark.usefixtures("in_process")


@pytest.fixture
def submitted(cli, wish):
    return cli("studies", "run", wish, "--try", "learning_rate=0.1,0.01", "--try", "seed=1,2")


def test_run_submits_an_operation_for_each_set(cli, wish, submitted):
    study = Study.objects.get()
    assert submitted.stdout.strip() == study.pk
    assert "4 operations" in submitted.stderr and f"studies show {study.pk}" in submitted.stderr
    names = "learning_rate", "seed"
    values = [each.study_values for each in Operation.objects.all()]
    tried = {tuple(each[name] for name in names) for each in values}
    assert tried == {(0.1, 1), (0.1, 2), (0.01, 1), (0.01, 2)}
    assert study.name == "A wish" and study.metric == "best.value"


def test_random_sets_and_the_design_of_a_file(cli, wish, tmp_path):
    wish.write_text(wish.read_text() + "design:\n  values:\n    epochs: [1, 2]\nmetric: epochs\n")
    ran = cli(
        "studies", "run", wish, "--try", "learning_rate={low: 0.001, high: 0.1, log: true}",
        "--random", 3, "--seed", 5, "--mode", "max", "--name", "dice", "-o", "json",
    )  # fmt: skip
    study = ran.json
    assert study["design"]["method"] == "random" and study["design"]["seed"] == 5
    assert len(study["operations"]) == 3 and study["mode"] == "max" and study["name"] == "dice"
    assert {"epochs", "learning_rate"} == set(study["design"]["values"])
    refused = cli("run", wish)
    assert (
        refused.exit_code == ExitCode.USAGE and "design: there is no such field" in refused.stderr
    )


@pytest.mark.slow
def test_they_are_listed_compared_and_stopped(cli, submitted):
    study = Study.objects.get()
    for rank, operation in enumerate(Operation.objects.order_by("pk")):
        operation.row.update(state="COMPLETED", result={"best": {"value": 0.5 + rank}})
    shown = cli("studies", "ls").stdout
    assert study.pk in shown and "4 completed" in shown and "100 %" in shown
    shown = cli("studies", "show", study.pk[-6:]).stdout
    assert "BEST.VALUE" in shown and "learning_rate" in shown and "0.5" in shown
    lines = cli("studies", "show", study.pk, "-o", "json").json["operations"]
    assert [line["value"] for line in lines] == [0.5, 1.5, 2.5, 3.5]
    assert cli("studies", "ls", "--mine", "-o", "json").json[0]["id"] == study.pk


@pytest.mark.slow
def test_a_cancel_a_resume_and_a_deletion_reach_all(cli, submitted):
    study = Study.objects.get()
    assert "4 operations" in cli("studies", "cancel", study.pk).stdout
    assert "4 operations" in cli("studies", "resume", study.pk).stdout
    assert cli("studies", "rm", study.pk, "--yes").exit_code == ExitCode.CONFLICT
    assert "4 operations" in cli("studies", "cancel", study.pk, "--now").stdout
    assert "was deleted" in cli("studies", "rm", study.pk, "--yes").stdout
    assert cli("studies", "show", study.pk[-4:]).exit_code == ExitCode.NOT_FOUND
    assert json.loads(cli("studies", "ls", "-o", "json").stdout) == []


@pytest.mark.parametrize("typed", ["epochs", "=1,2", "epochs=", "epochs={", "epochs=[1"])
def test_what_cannot_be_tried_is_a_usage_error(cli, wish, typed):
    ran = cli("studies", "run", wish, "--try", typed)
    assert ran.exit_code == ExitCode.USAGE and f"--try {typed}" in ran.stderr
    assert not Study.objects.exists()


def test_one_operation_is_not_counted_as_several(cli, wish):
    assert "Submitted 1 operation.\n" in cli("studies", "run", wish, "--try", "seed=1").stderr


def test_a_wrong_value_is_explained(cli, wish):
    ran = cli("studies", "run", wish, "--try", "epochs=0")
    assert ran.exit_code == ExitCode.USAGE and "epochs: got 0" in ran.stderr


def test_a_sampler_runs_trials_and_the_study_is_extended(cli, wish):
    ran = cli(
        "studies", "run", wish, "--try", "learning_rate={low: 0.001, high: 0.1, log: true}",
        "--sampler", "tpe", "--trials", 6, "--parallel", 2, "--pruner", "asha",
        "--max-seconds", 60, "-o", "json",
    )  # fmt: skip
    design = ran.json["design"]
    assert (design["method"], design["samples"], design["parallel"]) == ("tpe", 6, 2)
    assert design["pruner"]["method"] == "asha" and design["pruner"]["metric"] == "val_loss"
    assert len(ran.json["operations"]) == 2 and ran.json["max_seconds"] == 60
    study = Study.objects.get()
    said = cli("studies", "extend", study.pk, "--trials", 4, "--seconds", 30).stdout
    study.refresh_from_db()
    assert "others follow" in said and (study.num_trials, study.max_seconds) == (10, 90)
    refused = cli("studies", "run", wish, "--try", "seed=1", "--sampler", "dice")
    assert refused.exit_code == ExitCode.USAGE and "got 'dice'" in refused.stderr


def test_a_resume_under_changed_code_names_the_files_and_changes_nothing(cli, submitted):
    study = Study.objects.get()
    cli("studies", "cancel", study.pk)
    changed, *_ = Operation.objects.order_by("pk")
    saved(changed, environment=CHANGED)
    refused = cli("studies", "resume", study.pk)
    assert refused.exit_code == ExitCode.CONFLICT and CHANGED_FILE in refused.stderr
    assert f"studies resume {study.pk} --accept-inexact" in refused.stderr
    assert set(Operation.objects.values_list("state", flat=True)) == {"CANCELLED"}
    assert "4 operations" in cli("studies", "resume", study.pk, "--accept-inexact").stdout
    assert changed.row.get().state == "RESUMING"
