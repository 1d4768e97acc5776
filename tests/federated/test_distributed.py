"""Clients trained elsewhere, in any order, come to the bits of a run in one process."""

import pytest

from tests.engines.contract import require_same_end
from tests.federated.elsewhere import Elsewhere, go_distributed
from tests.federated.runs import PRIVACY, ServerLedger, case, go, make_job
from tests.thinning import some_of
from trainops.kind import KINDS
from trainops.kinds.federated.accounting import epsilon
from trainops.kinds.federated.client import read_client
from trainops.kinds.federated.local_training import LocalTraining
from trainops.kinds.federated.releases import Release
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.store import Candidate, CheckpointStore
from trainops.runtime.errors import ConfigError, IncompatibleState
from trainops.runtime.loop import Failed, Succeeded

pytestmark = pytest.mark.slow
every_mode = pytest.mark.parametrize("mode", PRIVACY)
AWAY = {"placement": "distributed"}


@pytest.fixture
def trained(monkeypatch):
    """The client epochs that were trained, in order: round, client, epoch."""
    trained, train = [], LocalTraining.train

    def watched(local_training, noise, step):
        trained.append((local_training.number, local_training.client, local_training.epoch))
        return train(local_training, noise, step)

    monkeypatch.setattr(LocalTraining, "train", watched)
    return trained


def elsewhere(case_, root, ledger, **more):
    config = KINDS["federated"].parse_config({"seed": 7, **case_.config, **AWAY})
    return Elsewhere(root / "clients", config, ledger, **more)


def by_step(ledger):
    return sorted(ledger.spent(), key=lambda entry: entry.step)


@pytest.mark.parametrize(
    ("mode", "more"),
    [*((mode, {}) for mode in PRIVACY),
     ("none", {"server": {"strategy": "fedyogi"}, "parameters": {"norm": True}}),
     ("none", {"server": {"strategy": "median"}, "parameters": {"measured": True}}),
     ("sample", {"server": {"strategy": "fedprox"}, "fraction": 0.5}),
     ("user", {"fraction": 0.4, "clients": 6, "rounds": 5}),
     ("hybrid", {"fraction": 0.2, "rounds": 6})],
)  # fmt: skip
def test_in_whatever_order_clients_end_the_result_is_that_of_one_process(mode, more, tmp_path):
    case_, whole, ledger = case(mode, **more), ServerLedger(), ServerLedger()
    expected = go(case_, tmp_path / "whole", whole)
    house = elsewhere(case_, tmp_path, ledger)
    supervisor, outcome = go_distributed(case_, tmp_path / "op", house, ledger)
    assert isinstance(outcome, Succeeded), outcome
    require_same_end(expected, [supervisor])
    assert by_step(ledger) == by_step(whole)
    assert len(house.done) > 3


@pytest.mark.parametrize(
    ("mode", "epsilon"),
    [*(("sample", epsilon) for epsilon in (6.0, 6.5, 8.0)), ("hybrid", 9.0), ("hybrid", 11.5)],
)
def test_a_budget_ends_it_at_the_very_epoch(mode, epsilon, tmp_path):
    privacy = {"target_epsilon": epsilon, "noise_multiplier": 1.0, "user_noise_multiplier": 20.0}
    case_, whole, ledger = case(mode, privacy), ServerLedger(), ServerLedger()
    expected = go(case_, tmp_path / "whole", whole)
    supervisor, outcome = go_distributed(
        case_, tmp_path / "op", elsewhere(case_, tmp_path, ledger), ledger
    )
    assert outcome.result["reason"] == "PRIVACY_BUDGET"
    require_same_end(expected, [supervisor])
    assert by_step(ledger) == by_step(whole)


@every_mode
def test_killed_server_and_client_end_exactly_and_train_nothing_again(mode, tmp_path, trained):
    require_kill_changes_nothing(mode, tmp_path, trained, at=[10])


@pytest.mark.parametrize("mode", some_of([*PRIVACY], every=2))
def test_killed_at_every_place_it_ends_exactly(mode, tmp_path, trained):
    require_kill_changes_nothing(mode, tmp_path, trained, at=range(0, 24, 2))


def require_kill_changes_nothing(mode, tmp_path, trained, at):
    case_, whole = case(mode), ServerLedger()
    expected = go(case_, tmp_path / "whole", whole)
    order = sorted(trained)
    for step in at:
        trained.clear()
        ledger, root = ServerLedger(), tmp_path / str(step)
        house = elsewhere(case_, root, ledger, dies_at=(2, 1))
        first, _ = go_distributed(
            case_, root / "op", house, ledger, at=step, dies=True, every_steps=1
        )
        saved = first.checkpoints[::-1]
        second, outcome = go_distributed(
            case_, root / "op", house, ledger, resume=saved, number=2, every_steps=1
        )
        assert isinstance(outcome, Succeeded), outcome
        require_same_end(expected, [first, second])
        assert by_step(ledger) == by_step(whole)
        assert sorted(trained) == sorted([*order, (2, 1, 0)]), "only what was not saved, again"


def test_what_a_machine_of_another_kind_did_is_reported_also_after_a_resume(tmp_path, monkeypatch):
    case_, ledger = case("none"), ServerLedger()
    house, train = elsewhere(case_, tmp_path, ledger), Elsewhere._train

    def train_there(self, subtask):
        with monkeypatch.context() as there:
            if (subtask.group, subtask.index) == (1, 2):
                there.setattr(reproducibility, "processor", lambda: "another one")
            return train(self, subtask)

    monkeypatch.setattr(Elsewhere, "_train", train_there)
    first, _ = go_distributed(
        case_, tmp_path / "op", house, ledger, at=10, dies=True, every_steps=1
    )
    assert first.checkpoints[-1].state["differs"] == ["processor"]
    second, outcome = go_distributed(
        case_, tmp_path / "op", house, ledger, resume=first.checkpoints[::-1], number=2
    )
    assert outcome.result["differs"] == second.checkpoints[-1].state["differs"] == ["processor"]
    alike = elsewhere(case_, tmp_path / "alike", ledger)
    monkeypatch.setattr(Elsewhere, "_train", train)
    _, outcome = go_distributed(case_, tmp_path / "alike" / "op", alike, ledger)
    assert "differs" not in outcome.result


def run_without(tmp_path, mode="none", **more):
    changes = {name: more.pop(name) for name in ("lost", "failing") if name in more}
    case_, ledger = case(mode, **AWAY, **more), ServerLedger()
    house = elsewhere(case_, tmp_path, ledger, **changes)
    supervisor, outcome = go_distributed(case_, tmp_path / "op", house, ledger)
    return house, supervisor, outcome


@every_mode
def test_a_round_continues_without_clients_that_stay_away(mode, tmp_path):
    house, supervisor, outcome = run_without(
        tmp_path, mode, lost=[1], round_timeout=60, min_clients=1 if mode == "user" else 3
    )
    assert isinstance(outcome, Succeeded), outcome
    assert house.dropped == {(1, 1), (2, 1), (3, 1)}
    assert outcome.result["dropped"] == 3 and outcome.result["client_epochs"] == 24 - 3 * 2
    history = supervisor.checkpoints[-1].state["round_history"]
    assert [(line["clients"], line["dropped"]) for line in history] == [(3, 1)] * 3


@every_mode
def test_who_was_dropped_is_state_and_a_resume_keeps_to_it(mode, tmp_path):
    case_, ledger = case(mode, **AWAY, round_timeout=60), ServerLedger()
    house = elsewhere(case_, tmp_path, ledger, lost=[1])
    first, _ = go_distributed(case_, tmp_path / "op", house, ledger, at=14, dies=True,
                              every_steps=1)  # fmt: skip
    assert first.checkpoints[-1].state["dropped"] == [1]
    second, _ = go_distributed(case_, tmp_path / "op", house, ledger, number=2,
                               resume=first.checkpoints[::-1])  # fmt: skip
    undisturbed = elsewhere(case_, tmp_path / "other", other := ServerLedger(), lost=[1])
    expected, _ = go_distributed(case_, tmp_path / "other" / "op", undisturbed, other)
    require_same_end(expected, [first, second])


def test_never_with_fewer_than_min_clients(tmp_path, monkeypatch):
    house, waits = None, []
    case_ = case(**AWAY, round_timeout=60, min_clients=4)
    house = elsewhere(case_, tmp_path, ledger := ServerLedger(), lost=[1])
    hear = house.results

    def results(seconds):
        waits.append(house.supervisor.progress[-1].place)
        if len(waits) > 12:
            house.lost = ()
        return hear(seconds)

    house.results = results
    _, outcome = go_distributed(case_, tmp_path / "op", house, ledger)
    assert isinstance(outcome, Succeeded) and not house.dropped
    assert "0 of 3 rounds, 3 of 4 clients done; past its time, and waits for at least 4" in waits


def test_a_client_that_fails_fails_the_run_or_is_gone_without(tmp_path):
    _, _, outcome = run_without(tmp_path / "1", failing=[2])
    assert isinstance(outcome, Failed)
    assert str(outcome.error) == "client 2 failed in round 1: its disk burned"
    _, _, outcome = run_without(tmp_path / "2", failing=[2], round_timeout=60)
    assert isinstance(outcome, Succeeded) and outcome.result["dropped"] == 3
    _, _, outcome = run_without(tmp_path / "3", failing=[2], round_timeout=60, min_clients=4)
    assert "of the round's 4 clients 3 are left, and min_clients is 4" in str(outcome.error)


def test_clients_that_the_budget_held_back_go_out_when_others_are_gone(tmp_path):
    """Client 0 has spent nearly all of it before, so at first nobody after it was sent."""
    before = Release(
        noise="a" * 32, step=1, round=1, client=0, level="sample", noise_multiplier=1.0,
        sample_rate=0.5, steps=30, is_own=False,
    )  # fmt: skip
    budget = epsilon({(1.0, 0.5): 32}, 1e-5)
    ledger = ServerLedger([before])
    case_ = case("sample", {"target_epsilon": budget, "noise_multiplier": 1.0}, **AWAY,
                 round_timeout=60)  # fmt: skip
    house = elsewhere(case_, tmp_path, ledger, failing=[0])
    _, outcome = go_distributed(case_, tmp_path / "op", house, ledger)
    assert isinstance(outcome, Succeeded), outcome
    assert [[part[1] for part in sent] for sent in house.sent][:2] == [[0], [1, 2, 3]]
    assert outcome.result["privacy"]["epsilon"] <= budget


def test_without_room_for_any_client_a_distributed_run_ends(tmp_path):
    """What is ahead costs nothing; what an ancestor spent meanwhile leaves room for no more."""
    privacy = {"target_epsilon": 30.0, "noise_multiplier": 1.0}
    case_, ledger = case("sample", privacy, **AWAY), ServerLedger()
    house = elsewhere(case_, tmp_path, ledger)
    first, _ = go_distributed(case_, tmp_path / "op", house, ledger, at=2, dies=True,
                              every_steps=1)  # fmt: skip
    much = Release(noise="b" * 32, step=99, round=2, client=0, level="sample", noise_multiplier=1.0,
                 sample_rate=0.5, steps=500, is_own=False)  # fmt: skip
    ledger.append([much.to_entry()])
    _, outcome = go_distributed(case_, tmp_path / "op", house, ledger, number=2,
                                resume=first.checkpoints[::-1])  # fmt: skip
    assert isinstance(outcome, Succeeded), outcome
    assert outcome.result["reason"] == "PRIVACY_BUDGET"


def loaded(final):
    store = CheckpointStore(final.path.parent, identity={})
    return store.load(Candidate(final.path, final.digest))


def test_what_began_with_another_model_is_refused(tmp_path):
    case_ = case(**AWAY)
    house = elsewhere(case_, tmp_path, None)
    go_distributed(case_, tmp_path / "op", house, None)
    job = KINDS["federated"].make_job(house.config, {}, None)
    final = house.done[2, 0]
    state = CheckpointStore(final.path.parent, identity={}).load(
        Candidate(final.path, final.digest)
    )
    with pytest.raises(IncompatibleState, match="client 0 began with another model"):
        read_client(state, job.server, job.progress, 0)
    with pytest.raises(IncompatibleState, match="client 0 began with another model"):
        read_client({**state, "state": state["state"] | {"round": 1}}, job.server, job.progress, 0)


@pytest.mark.parametrize("mode", ["user", "hybrid"])
def test_a_clients_own_checkpoint_hides_it_from_readers_without_the_secret(mode, tmp_path):
    case_, ledger = case(mode, **AWAY), ServerLedger()
    house = elsewhere(case_, tmp_path, ledger)
    go_distributed(case_, tmp_path / "op", house, ledger)
    final = house.done[1, 2]
    state = CheckpointStore(final.path.parent, identity={}).load(
        Candidate(final.path, final.digest)
    )
    assert state["client"]["parameters"].keys() == {"masked", "stream", "type", "shape"}
    job = make_job(mode, ledger)
    plain = job.server.visited(state["client"], 2, 1)
    assert (plain["client"], plain["parameters"].shape) == (2, job.server.parameters.shape)
    with pytest.raises(IncompatibleState, match="another secret"):
        make_job(mode, ServerLedger(secret=b"another")).server.visited(state["client"], 2, 1)


def test_what_a_client_spends_does_not_tell_its_size(tmp_path):
    uneven = {"partition": {"by": "dirichlet", "alpha": 0.5}}
    case_, ledger = case("hybrid", **AWAY, **uneven), ServerLedger()
    house = elsewhere(case_, tmp_path, ledger)
    _, outcome = go_distributed(case_, tmp_path / "op", house, ledger)
    assert isinstance(outcome, Succeeded), outcome
    assert len({each.steps for each in ledger.releases() if each.level == "sample"}) > 1
    figures = [loaded(house.done[1, client])["state"]["privacy"] for client in range(4)]
    assert figures[0]["path_epsilon"] > 0
    assert len({each["path_epsilon"] for each in figures}) == 1


def test_labels_go_with_the_parts(tmp_path):
    labels = {"*": "client-{client}", "2": "hospital"}
    house, _, _ = run_without(tmp_path, labels=labels, rounds=1)
    assert [label for *_, label in house.sent[0]] == [
        "client-0", "client-1", "hospital", "client-3"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "changes", "message"),
    [
        ("labels", {"labels": {"0": "a"}}, "placement: distributed"),
        ("round_timeout", {"round_timeout": 5}, "placement: distributed"),
        ("round_timeout", {**AWAY, "round_timeout": 0}, "greater than 0"),
        ("placement", {"placement": "everywhere"}, "'in_process' or 'distributed'"),
        ("labels", {**AWAY, "labels": {"4": "a"}}, "allowed: 0 to 3"),
        ("labels", {**AWAY, "labels": {"one": "a"}}, "allowed: numbers from 0, and *"),
        ("labels", {**AWAY, "labels": {"*": "a b"}}, "letters, digits"),
        ("labels", {**AWAY, "labels": {"*": "x" * 60 + "{client}{client}{client}{client}{client}"}},
         "at most 64"),
        ("labels", {**AWAY, "labels": {"*": "a"}, "fraction": 0.5,
                    "privacy": {"mode": "user", "user_noise_multiplier": 1.0}},
         "which clients are sampled"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_refused_by_name(field, changes, message):
    with pytest.raises(ConfigError) as refused:
        KINDS["federated"].parse_config({**case().config, **changes})
    assert message in refused.value.errors[field]
