"""A new operation that continues from a checkpoint of another, with some things different."""

import pytest

from apps.checkpoints import integrity, storage
from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.operations.models import Attempt, Operation
from apps.operations.requests import deletion, forking, warm_starting
from tests.api.conftest import signed_in
from tests.operations.attempts import killed_after_its_first_checkpoint, run, submit
from tests.operations.test_supervisor import curve, weights
from tests.parsing import parsed_configs
from trainops.errors import DomainError
from trainops.runtime.errors import ConfigError

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
STEPS = {"checkpoint": {"every_steps": 10, "keep_last": 5}}


@pytest.fixture(autouse=True)
def _storage_of_its_own(settings, tmp_path):
    settings.CHECKPOINT_ROOT = tmp_path / "checkpoints"


@pytest.fixture
def source(runtime):
    """One that was killed after its checkpoint of step 10."""
    return killed_after_its_first_checkpoint(runtime, every_steps=10, epochs=10)


@pytest.mark.exhaustive
@pytest.mark.parametrize("verb", ["fork", "extend", "warm_start"])
def test_the_config_of_a_new_operation_is_validated_once(runtime, person, monkeypatch, verb):
    half = run(runtime, submit(epochs=4, owner=person, **STEPS))
    parsed = parsed_configs(monkeypatch)
    wanted = {"operation_id": half.pk, "owner": person}
    match verb:
        case "fork":
            forking.fork(**wanted, config={"epochs": 9})
        case "extend":
            forking.extend(**wanted, to=9)
        case "warm_start":
            warm_starting.warm_start(**wanted, config={"epochs": 9})
    new = {name: [each for each in raw if each["epochs"] == 9] for name, raw in parsed.items()}
    assert [len(each) for each in new.values()] == [1, 1]


def test_a_fork_stays_in_the_project_of_its_source_unless_another_is_given(source, person):
    source.row.update(project="vision")
    wanted = {"operation_id": source.pk, "owner": person}
    assert forking.fork(**wanted).project == "vision"
    assert forking.extend(**wanted, to=20, project="speech").project == "speech"
    assert warm_starting.warm_start(**wanted, project="").project == ""


def learning_rates(operation):
    """Return those of its newest checkpoint."""
    from trainops.runtime.checkpoint.store import Candidate, CheckpointStore

    row = checkpoints.to_resume_from(operation.pk)[0]
    path = storage.directory(row.artifacts_path)
    state = CheckpointStore(path.parent, identity={}).load(Candidate(path, row.manifest_digest))
    groups = [g for optimizer in state["optimizer"] for g in optimizer["param_groups"]]
    return {group["lr"] for group in groups} | {row.state["learning_rate"]}


def test_a_fork_continues_to_the_identical_result_and_outlives_the_other(runtime, person):
    whole = run(runtime, submit(epochs=20, owner=person))
    half = run(runtime, submit(epochs=10, owner=person, **STEPS))
    fork = forking.fork(operation_id=half.pk, owner=person, config={"epochs": 20})
    assert (fork.forked_from_id, fork.step) == (half.pk, half.step)
    assert fork.name == f"{half.name} (fork)"
    note = fork.events.get(what="FORKED").note
    assert note == f"from {half.pk}, epoch 10 (step {half.step})"
    deletion.delete(operation_id=half.pk, actor=person)

    ended = run(runtime, fork)

    assert ended.state == "COMPLETED" and ended.forked_from is None
    assert Attempt.objects.get(operation=fork).from_step == half.step
    assert weights(ended) == weights(whole)
    later = [point for point in curve(whole) if point[1] > half.step]
    assert curve(ended) == later


def test_a_chosen_checkpoint_is_forked_and_the_other_stays_as_it_is(runtime, person, source):
    before = Operation.objects.values().get(pk=source.pk)
    chosen = source.checkpoints.get()
    fork = forking.fork(operation_id=source.pk, owner=person, checkpoint_id=chosen.pk, name="b")
    assert (fork.name, fork.step, fork.config) == ("b", 10, source.config)
    assert Operation.objects.values().get(pk=source.pk) == before
    own = fork.checkpoints.get()
    assert integrity.check(own) is None
    assert {each["name"]: each["blake3"] for each in own.manifest} == {
        each["name"]: each["blake3"] for each in chosen.manifest
    }


def test_a_lower_learning_rate_is_what_the_optimizer_continues_with(person, source):
    assert learning_rates(source) == {source.config["learning_rate"]}
    fork = forking.fork(operation_id=source.pk, owner=person, config={"learning_rate": 1e-5})
    assert learning_rates(fork) == {1e-5}
    assert learning_rates(source) == {source.config["learning_rate"]}


@pytest.mark.parametrize(
    ("config", "field", "why"),
    [
        ({"batch_size": 8}, "batch_size", "got 8; a fork keeps 16; allowed to differ: checkpoint"),
        ({"seed": 4}, "seed", "a fork keeps 0"),
        ({"parameters": {"at": 99}}, "parameters", "a fork keeps"),
        ({"epochs": -1}, "epochs", "got -1"),
        ({"epoch": 5}, "epoch", "did you mean epochs?"),
    ],
)
def test_what_would_change_the_state_is_refused_and_nothing_is_left(
    person, source, config, field, why
):
    with pytest.raises(ConfigError) as refused:
        forking.fork(operation_id=source.pk, owner=person, config=config)
    assert why in refused.value.errors[field]
    assert Operation.objects.count() == Checkpoint.objects.count() == 1


def test_a_schedule_rests_on_its_learning_rate_and_its_end(runtime, person):
    source = run(runtime, submit(epochs=2, owner=person, scheduler="cosine"))
    for config in ({"learning_rate": 0.5}, {"epochs": 9}):
        with pytest.raises(ConfigError, match="the cosine schedule was built for"):
            forking.fork(operation_id=source.pk, owner=person, config=config)


def test_altered_bytes_are_never_forked(person, source):
    path = storage.directory(source.checkpoints.get().artifacts_path) / "model.pt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DomainError) as refused:
        forking.fork(operation_id=source.pk, owner=person)
    assert refused.value.code == "CHECKPOINT_CORRUPTED"
    assert Operation.objects.count() == 1
    everything = storage.operation_directory(source.pk).parent.glob("op_*")
    assert [path.name for path in everything] == [source.pk]


def test_the_api_answers_with_the_new_operation_once(db, source):
    api = signed_in("ben", "operator")
    path, body = f"operations/{source.pk}/fork", {"config": {"epochs": 30}, "name": "twin"}
    first, again = (api.post(path, body, headers={"Idempotency-Key": "k1"}) for _ in "12")
    assert (first.status_code, again.status_code) == (202, 202)
    made = first.json()["data"]
    assert again.json()["data"]["id"] == made["id"] and Operation.objects.count() == 2
    assert first["Location"].endswith(f"/operations/{made['id']}")
    assert (made["forked_from"], made["step"], made["config"]["epochs"]) == (source.pk, 10, 30)

    refused = api.post(path, {"config": {"seed": 1}})
    assert refused.status_code == 400
    assert "a fork keeps 0" in str(refused.json()["error"]["details"])
    absent = api.post(path, {"checkpoint_id": "nothing"})
    assert (absent.status_code, absent.json()["error"]["code"]) == (404, "CHECKPOINT_NOT_FOUND")


def test_a_viewer_forks_nothing(db, source):
    answer = signed_in("vera", "viewer").post(f"operations/{source.pk}/fork")
    assert answer.status_code == 403 and Operation.objects.count() == 1
