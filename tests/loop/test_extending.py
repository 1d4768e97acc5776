"""A finished loop that is forked with more items continues, as if it had been that long."""

import pytest

from tests.engines.contract import Case, ScriptedSupervisor, attempt, bytes_of, undisturbed
from trainops.kind import KINDS
from trainops.process.forking import fork
from trainops.runtime.checkpoint.store import Candidate, CheckpointStore
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.loop import Succeeded

LOGGED = {"means": None, "metrics": None}


def program(length, *, inner=2):
    steps = {"name": "step", "length": inner, "body": ["work", "yield"]}
    data = {"name": "data", "length": 3, "workers": 0, "body": ["work", "yield"]}
    body = [{"name": "epoch", "length": length, "body": [steps, data, "yield"]}]
    config = {"recipe": "program", "parameters": {"body": body}, "monitor": "calls", "mode": "max"}
    return Case("loop", f"program-{length}", {**config, "threads": 1}, ())


def forked(source, before, after, root):
    kind = KINDS["loop"]
    return fork(
        kind,
        source=Candidate(source.path, source.digest),
        before=kind.parse_config({"seed": 7, **before.config}),
        after=kind.parse_config({"seed": 7, **after.config}),
        inputs={},
        store=CheckpointStore(root, identity={"attempt": 0}),
    )


@pytest.mark.parametrize("length", [3, 5])
def test_a_longer_loop_ends_with_the_files_of_an_undisturbed_one(tmp_path, length):
    short, longer = program(2), program(length)
    finished = undisturbed(short, tmp_path / "short").checkpoints[-1]
    expected = undisturbed(longer, tmp_path / "longer")
    begun = forked(finished, short, longer, tmp_path / "fork")
    assert begun.step == finished.step
    heard = ScriptedSupervisor()
    outcome = attempt(longer, tmp_path / "fork", heard, resume=[begun])
    assert isinstance(outcome, Succeeded), outcome
    found, wanted = heard.checkpoints[-1], expected.checkpoints[-1]
    assert all_but_state(found) == all_but_state(wanted)
    # The curves had a point at the end of the shorter one.
    assert {**found.state, **LOGGED} == {**wanted.state, **LOGGED}


def all_but_state(checkpoint):
    return {name: digest for name, digest in bytes_of(checkpoint).items() if name != "state.json"}


def test_a_loop_that_is_no_longer_is_refused(tmp_path):
    short = program(2)
    finished = undisturbed(short, tmp_path / "short").checkpoints[-1]
    with pytest.raises(IncompatibleState, match="ends before the place of the checkpoint"):
        forked(finished, short, program(2, inner=4), tmp_path / "fork")


def test_a_finished_loop_with_the_same_parameters_stays_finished(tmp_path):
    short = program(2)
    finished = undisturbed(short, tmp_path / "short").checkpoints[-1]
    again = forked(finished, short, short, tmp_path / "fork")
    assert again.state["is_finished"]
