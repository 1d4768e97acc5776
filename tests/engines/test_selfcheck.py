"""A second job loads a checkpoint and goes as far as the first: for every kind there is."""

import random
import socket
import threading
from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.engines import toy_model
from tests.engines.contract import CASES, Case, ScriptedSupervisor, make_dirty
from tests.thinning import quick_some
from trainops.kind import KINDS
from trainops.process import protocol, selfcheck, state_digests
from trainops.process.protocol import ToSecond
from trainops.process.wire import Wire
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.store import CheckpointPolicy, CheckpointStore
from trainops.runtime.checkpoint.stream import Stream
from trainops.runtime.ledger import MemoryLedger
from trainops.runtime.loop import run

TOY = Case("training", "here", {"recipe": "toy", "batch_size": 8, "epochs": 3}, stops=())


class LateTwin:
    """Does what the second process would, when the first run is over: they share this one."""

    def __init__(self, make_job, seed):
        self.make_job, self.seed = make_job, seed
        self.sent, self.may_begin, self.has_ended = [], threading.Event(), False

    def send(self, message):
        self.sent.append(message)

    def answer(self, timeout_seconds):
        assert self.may_begin.wait(60)
        make_dirty()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            wire = Wire(ours, protocol.Checked)
            for message in self.sent:
                wire.send(message)
            selfcheck.attend(self.make_job, self.seed, Wire(theirs, ToSecond))
            (answer,) = wire.read()
        return answer

    def has_died(self):
        return False

    def end(self):
        self.has_ended = True


class Checked(ScriptedSupervisor):
    def __init__(self, check):
        super().__init__()
        self.check = check

    def report(self, progress):
        directive = super().report(progress)
        self.check.reported(progress)
        return directive

    def checkpointed(self, checkpoint):
        super().checkpointed(checkpoint)
        self.check.checkpointed(checkpoint)


def found(case, root, *, between=lambda: None, advances=selfcheck.ADVANCES):
    """Run a case with checkpoints; return what the self-check of its first one found."""
    make_dirty()
    engine = KINDS[case.kind]
    config = engine.parse_config({"seed": 7, **case.config})
    inputs, findings = case.inputs(root), []

    def ledger(spent=()):
        return MemoryLedger(spent, secret=b"s" * 32) if "ledger" in engine.ports else None

    mine = ledger()
    twin = LateTwin(lambda spent: engine.make_job(config, inputs, ledger(spent)), config.seed)
    check = selfcheck.SelfCheck(twin, findings.append, mine.entries if mine else tuple, advances)
    run(
        lambda: check.of(engine.make_job(config, inputs, mine)),
        seed=config.seed,
        store=CheckpointStore(root / "run", identity={"attempt": 1}),
        policy=CheckpointPolicy(every_steps=case.stops[0] if case.stops else 4),
        supervisor=Checked(check),
    )
    between()
    twin.may_begin.set()
    for thread in threading.enumerate():
        if thread.name == "self-check":
            thread.join(60)
    return findings, {path.name for path in (root / "run").iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("case", quick_some(CASES, every=6), ids=str)
def test_every_case_of_the_contract_is_found_equal(case, tmp_path):
    findings, _ = found(case, tmp_path)
    if not findings:
        pytest.skip("too short for a self-check")
    (finding,) = findings
    assert finding.verdict == "equal", finding
    assert finding.until_step > finding.step


def test_all_four_kinds_have_a_case():
    assert {case.kind for case in CASES} == {*KINDS.computed}


def bringing(monkeypatch, change):
    original = toy_model.build
    monkeypatch.setattr(toy_model, "build", lambda *given: change(original(*given)))


class Counting(nn.Module):
    """Keeps a plain counter: nobody can see that it counts."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, values):
        self.calls += self.training
        return values * (1 + 0.01 * self.calls)


def test_a_plain_counter_is_found(monkeypatch, tmp_path):
    bringing(
        monkeypatch,
        lambda made: replace(made, model=nn.Sequential(made.model, Counting())),
    )
    (finding,), _ = found(TOY, tmp_path)
    assert finding.verdict == "differs" and {"model", "optimizer"} <= set(finding.parts)
    assert "random: torch" not in finding.parts


@pytest.mark.slow
def test_without_advances_it_is_only_loaded(monkeypatch, tmp_path):
    (finding,), _ = found(TOY, tmp_path, advances=0)
    assert (finding.verdict, finding.until_step) == ("loaded", finding.step)
    numbers = iter(range(3, 9))
    bringing(
        monkeypatch,
        lambda made: replace(made, model=nn.Sequential(made.model, nn.Linear(3, next(numbers)))),
    )
    (finding,), _ = found(TOY, tmp_path / "other", advances=0)
    assert finding.verdict == "not_loaded"


def test_a_state_that_does_not_fit_is_found_at_the_first_checkpoint(monkeypatch, tmp_path):
    numbers = iter(range(3, 9))
    bringing(
        monkeypatch,
        lambda made: replace(made, model=nn.Sequential(made.model, nn.Linear(3, next(numbers)))),
    )
    (finding,), _ = found(TOY, tmp_path)
    assert finding.verdict == "not_loaded" and "model.1.weight" in finding.reason


def test_it_writes_nothing(tmp_path):
    before = []
    findings, after = found(
        TOY,
        tmp_path,
        between=lambda: before.extend(each.name for each in (tmp_path / "run").iterdir()),
    )
    assert findings[0].verdict == "equal" and after == set(before)


def test_altered_bytes_are_found(tmp_path):
    def alter():
        (directory, *_) = sorted((tmp_path / "run").iterdir())
        path = directory / "model.pt"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)

    (finding,), _ = found(TOY, tmp_path, between=alter)
    assert finding.verdict == "not_loaded" and "altered: model.pt" in finding.reason


def test_without_room_for_a_second_job_none_is_made(monkeypatch, tmp_path):
    monkeypatch.setattr(selfcheck, "_memory", lambda path, name: 7 if "meminfo" in path else 8)
    (finding,), _ = found(TOY, tmp_path)
    assert finding.verdict == "not_made" and "second job needs" in finding.reason


DIFFERENT = [
    (0.0, -0.0), (1, True), (1, 1.0), ("1", 1), ([1], (1,)), ([1, 2], [12]), (None, 0),
    (torch.zeros(2), torch.zeros(2, 1)), (torch.zeros(2), -torch.zeros(2)),
    (torch.zeros(2), torch.zeros(2, dtype=torch.int32)), ({1: 2}, {2: 1}), ({1: {}}, {1: []}),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_a_digest_tells_bits_types_and_shapes_apart(one, other):
    assert state_digests.digest(one) == state_digests.digest(one)
    assert state_digests.digest(one) != state_digests.digest(other)


def test_a_digest_of_a_stream_is_of_its_length_and_its_newest_rows(monkeypatch):
    def stream(*values):
        made = Stream({"value": (torch.float64, ())})
        made.append({"value": torch.tensor(values, dtype=torch.float64)})
        return made

    assert state_digests.digest(stream(1, 2)) != state_digests.digest(stream(1, 3))
    assert state_digests.digest(stream(1, 2)) != state_digests.digest(stream(1, 2, 2))
    monkeypatch.setattr(state_digests, "STREAM_BYTES", 8)
    assert state_digests.digest(stream(1, 2)) == state_digests.digest(stream(5, 2))


def test_a_digest_draws_nothing(tmp_path):
    engine = KINDS["training"]
    job = engine.make_job(engine.parse_config(TOY.config))
    before = reproducibility.state_dict()
    assert state_digests.digests(job) == state_digests.digests(job)
    assert state_digests.digest(before) == state_digests.digest(reproducibility.state_dict())
    random.random()  # noqa: S311
    assert state_digests.digest(before) != state_digests.digest(reproducibility.state_dict())
