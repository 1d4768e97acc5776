"""Fork, extension, warm start and previews, asked for by HTTP."""

import pytest
from blake3 import blake3

from apps.checkpoints import integrity
from apps.checkpoints.models import Checkpoint
from apps.operations.lifecycle import State
from apps.operations.models import Operation
from apps.operations.requests import services
from tests.api import forks
from tests.api.answers import data, error
from tests.api.saved import CHANGED, CHANGED_FILE, damage, saved
from tests.operations.rows import in_state
from trainops import paths

pytestmark = pytest.mark.django_db


@pytest.fixture
def operation(operator):
    operation = in_state(State.CANCELLED, operator.user)
    constant = operation.config | {"scheduler": "none"}
    operation.row.update(config=constant, config_given=constant)
    saved(operation, step=10, epoch=2)
    return operation


@pytest.fixture
def begun(monkeypatch):
    return forks.begun(monkeypatch)


def test_a_preview_says_what_would_happen(operator, operation):
    epochs = operation.config["epochs"]
    path = f"operations/{operation.pk}/preview"
    preview = data(operator.post(path, {"verb": "extend", "to": epochs + 5}))
    assert preview["changes"] == [{"field": "epochs", "before": epochs, "after": epochs + 5}]
    assert (preview["step"], preview["place"]) == (10, "epoch 2")
    assert "checkpoint at epoch 2" in preview["notes"][0]
    preview = data(operator.post(path, {"verb": "warm_start", "config": {"batch_size": 3}}))
    assert "step 0 with the weights" in preview["notes"][0]
    assert Operation.objects.count() == 1


def test_a_preview_names_no_default_of_the_installation_as_a_change(operator, settings):
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(
        update={"checkpoint_time_interval_seconds": 77}
    )
    config = {"recipe": "digits", "epochs": 9, "scheduler": "none"}
    source = services.submit(kind="training", config=config, owner=operator.user)
    saved(source, step=10, epoch=2)
    wanted = {"verb": "fork", "config": {"epochs": 12}}
    preview = data(operator.post(f"operations/{source.pk}/preview", wanted))
    assert preview["changes"] == [{"field": "epochs", "before": 9, "after": 12}]


def resume_preview(person, operation, **wanted):
    return person.post(f"operations/{operation.pk}/preview", {"verb": "resume", **wanted})


def test_a_preview_of_a_resume_says_where_it_continues(operator, operation):
    operation.row.update(step=25)
    preview = data(resume_preview(operator, operation))
    assert (preview["step"], preview["place"], preview["changes"]) == (10, "epoch 2", [])
    assert preview["notes"] == [
        "It continues from epoch 2, repeating 15 steps. The checkpoint is verified first.",
        "The checkpoint has no record of its code and environment: neither is compared.",
    ]
    assert operation.row.get().state == State.CANCELLED


def test_a_preview_of_a_resume_says_what_an_exact_one_requires(operator, operation):
    operation.row.update(config=operation.config | {"exact": "required"})
    saved(operation, step=20, environment={"torch": "2.9.0", "device_type": "cpu", "threads": 1})
    *_, then, required = data(resume_preview(operator, operation))["notes"]
    same = "torch version 2.9.0, device type cpu, threads 1"
    assert then == (
        f"It is exact only on a worker with the same {same}; "
        "the receipt of the resume lists what differs."
    )
    assert required == "The config requires an exact resume: one that is not fails, and says why."


def test_a_preview_of_a_resume_names_changed_files_of_the_recipe(operator, operation):
    model = paths.PACKAGE / "learning" / "tasks" / "digits_model.py"
    files = {
        "tasks/digits_model.py": blake3(model.read_bytes()).hexdigest(length=16),
        "tasks/digits.py": "0" * 32,
        "../paths.py": blake3((paths.PACKAGE / "paths.py").read_bytes()).hexdigest(length=16),
    }
    saved(operation, step=20, environment={"code": {"files": files, "packages": {}}})
    preview = data(resume_preview(operator, operation))
    names = "../paths.py, tasks/digits.py"
    note = f"It is not exact: these files of the recipe on this server differ: {names}."
    assert preview["notes"][-1] == note
    assert preview["changed_files"] == names.split(", ")


def test_a_resume_under_changed_code_is_refused_until_that_is_accepted(operator, operation):
    newest = saved(operation, step=20, environment=CHANGED)
    address = f"operations/{operation.pk}/resume"
    refused = error(operator.post(address), 409, "CODE_CHANGED")
    assert CHANGED_FILE in refused["message"]
    assert refused["details"] == {"changed_files": [CHANGED_FILE], "checkpoint_id": newest.pk}
    assert operation.row.get().state == State.CANCELLED
    data(operator.post(address, {"accept_inexact": True}))
    assert operation.row.get().state == State.RESUMING


def test_a_refusal_says_what_else_is_accepted(operator, operation):
    saved(operation, step=20, environment=CHANGED)
    address = f"operations/{operation.pk}/resume"
    assert "exact: required" not in error(operator.post(address), 409, "CODE_CHANGED")["message"]
    operation.row.update(config=operation.config | {"exact": "required"})
    refused = error(operator.post(address), 409, "CODE_CHANGED")
    assert refused["message"].endswith("any other difference, too, which exact: required refuses.")


def test_a_resume_from_a_checkpoint_of_the_code_of_today_asks_nothing(operator, operation):
    older = Checkpoint.objects.get()
    saved(operation, step=20, environment=CHANGED)
    wanted = {"checkpoint_id": older.pk}
    assert data(resume_preview(operator, operation, **wanted))["changed_files"] == []
    data(operator.post(f"operations/{operation.pk}/resume", wanted))


def test_a_preview_of_a_resume_is_refused_as_the_resume_is(operator, operation):
    newest = saved(operation, step=20)
    damage(newest)
    integrity.check(newest)
    chosen = resume_preview(operator, operation, checkpoint_id=newest.pk)
    error(chosen, 409, "CHECKPOINT_CORRUPTED")
    assert "is corrupted" in data(resume_preview(operator, operation))["notes"][1]
    operation.row.update(state=State.COMPLETED)
    error(resume_preview(operator, operation), 409, "OPERATION_NOT_RESUMABLE")


@pytest.mark.parametrize(
    ("code", "body", "field"),
    [
        ("VALIDATION_ERROR", {}, "verb"),
        ("VALIDATION_ERROR", {"verb": "kill"}, "verb"),
        ("VALIDATION_ERROR", {"verb": "resume", "to": 5}, "to"),
        ("VALIDATION_ERROR", {"verb": "resume", "config": {"epochs": 3}}, "config"),
        ("INVALID_CONFIG", {"verb": "extend"}, "to"),
        ("INVALID_CONFIG", {"verb": "extend", "to": 1}, "to"),
        ("VALIDATION_ERROR", {"verb": "extend", "to": 0}, "to"),
        ("INVALID_CONFIG", {"verb": "fork", "config": {"batch_size": 1}}, "batch_size"),
        ("INVALID_CONFIG", {"verb": "warm_start", "config": {"epochs": "many"}}, "epochs"),
        ("VALIDATION_ERROR", {"verb": "fork", "name": "x"}, "name"),
    ],
)
def test_a_wrong_preview_names_the_field(operator, operation, code, body, field):
    refused = operator.post(f"operations/{operation.pk}/preview", body)
    assert field in error(refused, 400, code)["details"]["fields"]


EXTENSION = {"to": 70}


def test_previews_say_that_the_job_declared_a_resume_uncertain(operator, operation):
    path = f"operations/{operation.pk}/preview"
    receipt = {"step": 0, "checkpoint": None, "exact": True, "items": []}
    for number, uncertain in ((1, {}), (2, {"train": "the loader has no state"})):
        operation.attempts.create(number=number, receipt=receipt | {"uncertain": uncertain})
        operation.attempts.create(number=number + 9)  # one that has not started yet
        extension = data(operator.post(path, {"verb": "extend", **EXTENSION}))["notes"]
        resumed = data(resume_preview(operator, operation))["notes"]
        for notes in (extension, resumed):
            is_said = "It may not be exact: train: the loader has no state." in notes
            assert is_said == bool(uncertain)
        assert ("weights of a training" in " ".join(extension)) == (not uncertain)


@pytest.mark.parametrize(
    ("verb", "body"), [("fork", {"config": {"epochs": 70}}), ("extend", EXTENSION)]
)
def test_a_preview_under_changed_code_names_the_files_and_promises_nothing(
    operator, operation, verb, body
):
    path = f"operations/{operation.pk}/preview"
    assert data(operator.post(path, {"verb": verb, **body}))["changed_files"] == []
    saved(operation, step=20, environment=CHANGED)
    preview = data(operator.post(path, {"verb": verb, **body}))
    assert preview["changed_files"] == [CHANGED_FILE]
    notes = " ".join(preview["notes"])
    assert f"not exact: these files of the recipe on this server differ: {CHANGED_FILE}." in notes
    assert "weights of a training" not in notes and "continues exactly" not in notes
    assert "It runs to 70 epochs." in notes


def test_a_preview_of_a_warm_start_names_changed_files_and_asks_nothing(operator, operation):
    saved(operation, step=20, environment=CHANGED)
    path = f"operations/{operation.pk}/preview"
    preview = data(operator.post(path, {"verb": "warm_start"}))
    assert preview["changed_files"] == [CHANGED_FILE]
    assert CHANGED_FILE in preview["notes"][1] and "only the weights" in preview["notes"][1]
    fields = error(
        operator.post(f"operations/{operation.pk}/warm-start", {"accept_inexact": True}),
        400, "VALIDATION_ERROR",
    )["details"]["fields"]  # fmt: skip
    assert "accept_inexact" in fields


@pytest.mark.parametrize(("verb", "body"), [("fork", {}), ("extend", EXTENSION)])
def test_a_fork_under_changed_code_is_refused_until_that_is_accepted(
    operator, operation, begun, verb, body
):
    newest = saved(operation, step=20, environment=CHANGED)
    path = f"operations/{operation.pk}/{verb}"
    refused = error(operator.post(path, body), 409, "CODE_CHANGED")
    assert CHANGED_FILE in refused["message"]
    assert refused["details"] == {"changed_files": [CHANGED_FILE], "checkpoint_id": newest.pk}
    assert Operation.objects.count() == 1
    data(operator.post(path, body | {"accept_inexact": True}), 202)
    assert Operation.objects.count() == 2 and len(begun) == 1


def test_a_fork_that_requires_exactness_is_refused_under_changed_code(operator, operation, begun):
    saved(operation, step=20, environment=CHANGED)
    body = {"config": {"exact": "required"}}
    for path, more in (
        ("fork", {}),
        ("fork", {"accept_inexact": True}),
        ("preview", {"verb": "fork"}),
    ):
        refused = operator.post(f"operations/{operation.pk}/{path}", body | more)
        fields = error(refused, 400, "INVALID_CONFIG")["details"]["fields"]
        assert CHANGED_FILE in fields["exact"] and "allowed: reported" in fields["exact"]
    assert Operation.objects.count() == 1 and not begun


def test_a_fork_from_a_checkpoint_of_the_code_of_today_asks_nothing(operator, operation, begun):
    older = Checkpoint.objects.get()
    saved(operation, step=20, environment=CHANGED)
    data(operator.post(f"operations/{operation.pk}/fork", {"checkpoint_id": older.pk}), 202)


@pytest.mark.parametrize("verb", ["fork", "extend", "warm-start"])
def test_each_needs_an_operation_and_a_checkpoint(operator, operation, verb):
    body = {"to": 500} if verb == "extend" else {}
    error(operator.post(f"operations/op_x/{verb}", body), 404, "OPERATION_NOT_FOUND")
    bare = in_state(State.CANCELLED, operator.user)
    constant = bare.config | {"scheduler": "none"}
    bare.row.update(config=constant, config_given=constant)
    error(operator.post(f"operations/{bare.pk}/{verb}", body), 404, "CHECKPOINT_NOT_FOUND")


def test_an_extension_takes_no_config(operator, operation):
    body = {"to": 500, "config": {"epochs": 3}}
    refused = operator.post(f"operations/{operation.pk}/extend", body)
    assert "config" in error(refused, 400, "VALIDATION_ERROR")["details"]["fields"]


def test_previews_of_forks_promise_nothing_where_the_source_was_continued_inexactly(
    operator, operation
):
    path = f"operations/{operation.pk}/preview"
    before = Checkpoint.objects.get().artifacts_path.partition("/")[2]
    first = {"step": 0, "checkpoint": None, "exact": True, "items": []}
    operation.attempts.create(number=1, receipt=first)
    resumed = {"step": 10, "checkpoint": before, "exact": False, "items": []}
    operation.attempts.create(number=2, receipt=resumed)
    fork = in_state(State.CANCELLED, operator.user)
    fork.row.update(config=operation.config, config_given=operation.config, forked_from=operation)
    saved(fork, step=20, attempt=0)

    def notes(of=operation, **more):
        wanted = {"verb": "extend", "to": 70, **more}
        return data(operator.post(f"operations/{of.pk}/preview", wanted))["notes"]

    said = "The operation was continued inexactly before."
    assert said not in notes() and "weights of a training" in " ".join(notes())
    newest = saved(operation, step=20, attempt=2)
    for each in (operation, fork):
        assert said in notes(each) and "It runs to 70 epochs." in notes(each)
        assert "weights of a training" not in " ".join(notes(each))
    chosen = Checkpoint.objects.exclude(pk=newest.pk).get(operation=operation)
    assert said not in notes(checkpoint_id=chosen.pk)
    fork_alone = data(operator.post(path, {"verb": "fork"}))["notes"]
    assert "continues exactly" not in " ".join(fork_alone)


VARYING = "deterministic algorithms: off on a GPU (deterministic: false)"


@pytest.mark.parametrize(
    ("environment", "is_said"),
    [
        ({"device_type": "cuda", "deterministic": False}, True),
        ({"device_type": "cuda", "deterministic": True}, False),
        ({"device_type": "cpu", "deterministic": False}, False),
        ({"device_type": "cuda"}, False),
    ],
)
def test_previews_derive_uncertainty_of_earlier_versions_from_the_environment(
    operator, operation, environment, is_said
):
    config = operation.config | {"deterministic": environment.get("deterministic", True)}
    operation.row.update(config=config, config_given=config)
    receipt = {"step": 0, "checkpoint": None, "exact": True, "items": []}
    operation.attempts.create(number=1, receipt=receipt)
    saved(operation, step=20, environment=environment)
    wanted = {"verb": "extend", **EXTENSION}
    extension = data(operator.post(f"operations/{operation.pk}/preview", wanted))["notes"]
    resumed = data(resume_preview(operator, operation))["notes"]
    for notes in (extension, resumed):
        assert any(f"It may not be exact: {VARYING}" in note for note in notes) == is_said
    assert ("weights of a training" in " ".join(extension)) == (not is_said)


@pytest.mark.parametrize(
    ("changes", "is_said"),
    [
        ({"epochs": 70}, True),
        ({"deterministic": True}, False),
        ({"device": "cpu"}, False),
        ({"device": "cpu", "epochs": 70}, False),
    ],
)
def test_a_preview_of_a_fork_is_about_the_config_of_the_fork(operator, operation, changes, is_said):
    varying = operation.config | {"deterministic": False}
    operation.row.update(config=varying, config_given=varying)
    loader = {"train": "the loader has no state"}
    receipt = {"step": 0, "checkpoint": None, "exact": True, "items": [], "uncertain": loader}
    operation.attempts.create(number=1, receipt=receipt)
    saved(operation, step=20, environment={"device_type": "cuda", "deterministic": False})
    wanted = {"verb": "fork", "config": changes}
    notes = " ".join(data(operator.post(f"operations/{operation.pk}/preview", wanted))["notes"])
    assert (VARYING in notes) == is_said
    assert "train: the loader has no state." in notes
    assert "weights of a training" not in notes and "continues exactly" not in notes
