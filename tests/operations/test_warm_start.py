"""Extensions and warm starts: new operations from a checkpoint of another."""

import pytest
import torch

from apps.checkpoints import services as checkpoints
from apps.checkpoints import storage
from apps.ledger.services import account_of
from apps.operations.models import Attempt, Operation
from apps.operations.requests import forking, previews, services, warm_starting
from tests.operations.attempts import run, submit
from tests.operations.releases import spent_by, verify
from tests.operations.test_supervisor import curve, weights
from trainops.errors import DomainError
from trainops.kind import KINDS
from trainops.kinds.federated.web import federation
from trainops.runtime.checkpoint.store import Candidate, CheckpointStore
from trainops.runtime.errors import ConfigError
from trainops.runtime.job import WarmStarting

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def _storage_of_its_own(settings, tmp_path):
    settings.CHECKPOINT_ROOT = tmp_path / "checkpoints"


@pytest.fixture
def trained(runtime, person):
    return run(runtime, submit(epochs=4, owner=person))


def state_of(operation):
    row = checkpoints.to_resume_from(operation.pk)[0]
    path = storage.directory(row.artifacts_path)
    return CheckpointStore(path.parent, identity={}).load(Candidate(path, row.manifest_digest))


def test_an_extension_ends_with_the_weights_of_a_longer_training(runtime, person, trained):
    whole = run(runtime, submit(epochs=8, owner=person))
    longer = forking.extend(operation_id=trained.pk, owner=person, to=8)
    assert (longer.forked_from_id, longer.config["epochs"]) == (trained.pk, 8)
    ended = run(runtime, longer)
    assert weights(ended) == weights(whole)
    assert curve(ended) == [point for point in curve(whole) if point[1] > trained.step]


def test_max_duration_completes_and_an_extension_raises_it(runtime, person):
    limits = {"max_duration": "6ba"}
    trained = run(runtime, submit(epochs=8, limits=limits, owner=person))
    assert (trained.state, trained.reason, trained.step) == ("COMPLETED", "", 6)
    assert trained.result["stopped_by"] == "max_duration at 6 batches"
    assert trained.events.first().note == "stopped by max_duration at 6 batches"
    whole = run(runtime, submit(epochs=8, limits={"max_duration": "9ba"}, owner=person))

    with pytest.raises(ConfigError, match=r"got 6; it was 6; allowed: more limits\.max_duration"):
        forking.extend(operation_id=trained.pk, owner=person, to=6)
    preview = previews.preview("extend", operation_id=trained.pk, to=9)
    assert preview.notes[1] == "It continues exactly, as if limits.max_duration had been 9ba."
    longer = forking.extend(operation_id=trained.pk, owner=person, to=9)
    assert longer.config["limits"]["max_duration"] == "9ba"

    ended = run(runtime, longer)
    assert (ended.state, ended.step) == ("COMPLETED", 9)
    assert weights(ended) == weights(whole)
    assert curve(ended) == [point for point in curve(whole) if point[1] > trained.step]


@pytest.mark.parametrize("to", [4, 3])
def test_an_extension_must_be_longer(person, trained, to):
    with pytest.raises(ConfigError, match=rf"to: got {to}; it was 4; allowed: more epochs"):
        forking.extend(operation_id=trained.pk, owner=person, to=to)
    assert Operation.objects.count() == 1


def test_a_warm_start_has_the_weights_and_nothing_else(runtime, person, trained):
    warm = warm_starting.warm_start(
        operation_id=trained.pk, owner=person, config={"batch_size": 8, "seed": 5}
    )
    assert (warm.step, warm.config["batch_size"], warm.forked_from) == (0, 8, None)
    given, begun = state_of(trained), state_of(warm)
    assert begun["model"].keys() == given["model"].keys()
    assert all(torch.equal(begun["model"][name], given["model"][name]) for name in given["model"])
    assert begun["optimizer"][0]["state"] == {} and begun["state"]["cursor"]["epoch"] == 0
    note = warm.events.get(what="WARM_STARTED").note
    number = len(given["model"])
    place = f"epoch {trained.config['epochs']} (step {trained.step})"
    assert f"weights of {trained.pk}, {place}; model: {number} of {number}" in note

    ended = run(runtime, warm)

    assert ended.state == "COMPLETED", ended.error
    assert Attempt.objects.get(operation=warm).from_step == 0
    assert weights(ended) != weights(trained)


def test_the_event_of_a_warm_start_names_the_weights_of_another_shape(runtime, person):
    config = {"recipe": "toy", "epochs": 1, "parameters": {"width": 6}}
    source = run(runtime, services.submit(kind="training", config=config, owner=person))
    warm = warm_starting.warm_start(
        operation_id=source.pk, owner=person, config={"parameters": {"width": 5}}
    )
    note = warm.events.get(what="WARM_STARTED").note
    assert "3 of 9 tensors; of another shape: 0.weight (6, 4), not (5, 4), " in note


def test_a_preview_says_what_it_would_do_and_does_nothing(person, trained):
    longer = previews.preview("extend", operation_id=trained.pk, to=9)
    assert [(each.field, each.before, each.after) for each in longer.changes] == [("epochs", 4, 9)]
    assert longer.notes[-1] == "It ends with the weights of a training submitted with 9 epochs."
    neutral = previews.preview("fork", operation_id=trained.pk, config={"exact": "required"})
    assert "continues exactly" in neutral.notes[-1]
    rounding = previews.preview("fork", operation_id=trained.pk, config={"threads": 9})
    assert "not exactly" in rounding.notes[-1]
    faster = previews.preview("fork", operation_id=trained.pk, config={"learning_rate": 0.5})
    assert "learning rate is 0.5 from this step on" in faster.notes[-1]
    warm = previews.preview("warm_start", operation_id=trained.pk, config={"batch_size": 8})
    assert "starts at step 0" in warm.notes[0]
    with pytest.raises(ConfigError, match="a fork keeps"):
        previews.preview("fork", operation_id=trained.pk, config={"batch_size": 8})
    assert Operation.objects.count() == 1


def test_an_extension_under_a_schedule_is_refused_with_both_values(runtime, person):
    cosine = run(runtime, submit(epochs=4, owner=person, scheduler="cosine"))
    for request in (
        lambda: previews.preview("extend", operation_id=cosine.pk, to=8),
        lambda: forking.extend(operation_id=cosine.pk, owner=person, to=8),
    ):
        with pytest.raises(ConfigError, match="got 8; the cosine schedule was built for 4"):
            request()


@pytest.mark.parametrize("verb", ["extend", "warm_start"])
def test_kinds_that_have_no_length_or_no_weights_are_refused(person, verb, trained):
    Operation.objects.filter(pk=trained.pk).update(kind="backtest")
    with pytest.raises(DomainError) as refused:
        previews.preview(verb, operation_id=trained.pk, to=8)
    assert refused.value.code == {"extend": "NO_LENGTH", "warm_start": "NO_WARM_START"}[verb]


PRIVATE = {"mode": "user", "user_noise_multiplier": 1.0}
CROWD = {"recipe": "crowd", "rounds": 1, "clients": 3, "batch_size": 6, "threads": 1,
         "fraction": 0.999, "min_clients": 1}  # fmt: skip


def federated(runtime, person, privacy):
    given = {"kind": "federated", "config": CROWD | {"privacy": privacy}, "owner": person}
    return run(runtime, services.submit(**given))


def test_a_private_warm_start_has_a_ledger_of_its_own_and_says_what_counts(runtime, client, person):
    source = federated(runtime, person, PRIVATE)
    assert source.state == "COMPLETED", source.error
    preview = previews.preview("warm_start", operation_id=source.pk)
    assert f"The ledger of {source.pk} is not carried over" in preview.notes[-1]
    assert "counts in addition" in preview.notes[-1]

    warm = warm_starting.warm_start(operation_id=source.pk, owner=person, config={"rounds": 2})

    assert not spent_by(warm.pk) and account_of(warm.pk).ancestors == []
    assert account_of(warm.pk).secret != account_of(source.pk).secret
    assert "counts in addition" in warm.events.get(what="WARM_STARTED").note
    ended = run(runtime, warm)
    assert ended.state == "COMPLETED", ended.error
    mine, others = spent_by(warm.pk), spent_by(source.pk)
    assert mine and not {each.noise for each in mine} & {each.noise for each in others}
    verify(warm.pk)
    forked = forking.fork(operation_id=warm.pk, owner=person)
    found = [
        federation.context(each, None)["federation"]["has_given_weights"]
        for each in (source, ended, forked)
    ]
    assert found == [False, True, True]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"mode": "none"}, {"mode": "none"}, []),
        ({"mode": "none"}, PRIVATE, ["does not limit what the weights reveal"]),
        (PRIVATE, {"mode": "none"}, ["counts in addition", "has no ledger"]),
    ],
)
def test_a_preview_of_a_warm_start_never_understates_what_was_spent(
    runtime, person, before, after, said
):
    source = federated(runtime, person, before)
    changes = {"privacy": {"user_noise_multiplier": None, **after}}
    notes = previews.preview("warm_start", operation_id=source.pk, config=changes).notes[2:]
    assert len(notes) == len(said)
    assert all(each in note for each, note in zip(said, notes, strict=True))


def test_descriptors_say_which_jobs_can_start_with_weights(tmp_path):
    from tests.engines.contract import CASES

    cases = {case.kind: case for case in reversed(CASES)}
    for name in ("training", "loop", "rl", "federated", "backtest"):
        kind, case = KINDS[name], cases[name]
        config = kind.parse_config({"seed": 7, **case.config})
        job = kind.make_job(config, case.inputs(tmp_path / name))
        assert isinstance(job, WarmStarting) == kind.has_weights, name
