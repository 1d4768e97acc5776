"""What has not changed since the checkpoint before is referred to, not written again."""

import os
import shutil

import pytest
import torch

from tests.engines.incremental import EQUITY, Run, grown
from trainops.runtime.checkpoint import archives
from trainops.runtime.checkpoint.manifest import read_manifest
from trainops.runtime.checkpoint.store import Candidate, verify
from trainops.runtime.checkpoint.stream import Stream
from trainops.runtime.errors import CheckpointCorrupted, UnfreezableState


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "op")


@pytest.fixture
def state():
    return grown()


def homes(checkpoint):
    return {each.name: each.home for each in checkpoint.artifacts}


def written(checkpoint):
    return {each.name for each in checkpoint.artifacts if not each.home}


def read(store, checkpoint):
    return store.load(Candidate(checkpoint.path, checkpoint.digest))


def test_only_what_changed_is_written(run, state):
    first = run.save(state)
    assert written(first) == {each.name for each in first.artifacts}
    state["model"]["weight"][7, 7] = 1
    state["equity"].append({"equity": torch.arange(3.0, dtype=torch.float64)})
    second = run.save(state)
    assert written(second) == {"state.json", "model.pt", "equity-tail.pt"}
    assert homes(second)["best_model.pt"] == homes(second)["equity-0x1.pt"] == first.path.name
    for name in ("best_model.pt", "equity-0x1.pt"):
        assert (second.path / name).samefile(first.path / name)
    third = run.save(state)
    assert written(third) == {"state.json"}
    assert homes(third)["best_model.pt"] == first.path.name, "where it was written, not the last"
    assert homes(third)["model.pt"] == second.path.name
    assert third.written_bytes < 100 < third.size_bytes


def test_each_checkpoint_is_whole_and_outlives_those_it_refers_to(run, state):
    checkpoints = []
    for number in range(4):
        state["model"]["weight"].fill_(number)
        state["equity"].append({"equity": torch.full((70,), float(number)).double()})
        checkpoints.append(run.save(state))
    last, equity = checkpoints.pop(), state["equity"].column("equity")
    for each in checkpoints:
        verify(each.path, each.digest)
        shutil.rmtree(each.path)
    verify(last.path, last.digest)
    found = read(run.store, last)
    assert torch.equal(found["equity"].column("equity"), equity)
    assert torch.equal(found["best_model"]["weight"], torch.ones(300, 300))
    assert found["model"]["weight"].unique().tolist() == [3]


@pytest.mark.parametrize("value", [-0.0, float("nan"), 1e-45])
def test_one_bit_that_differs_is_a_change(run, state, value):
    run.save(state)
    state["model"]["weight"][-1, -1] = value
    checkpoint = run.save(state)
    assert "model.pt" in written(checkpoint)
    found = read(run.store, checkpoint)["model"]["weight"]
    assert torch.equal(found.view(torch.int32), state["model"]["weight"].view(torch.int32))


@pytest.mark.parametrize(
    ("before", "after"),
    [(0.0, -0.0), (1, True), (1, 1.0), ("a", "b"), ([1, 2], (1, 2)), ([0.0] * 3, [0.0, 0.0, -0.0]),
     ({"a": 1}, {"a": 1, "b": 2}), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ([], None)],
)  # fmt: skip
def test_plain_values_that_only_compare_equal_are_changes(run, before, after):
    run.save({"rest": {"value": before}})
    checkpoint = run.save({"rest": {"value": after}})
    assert "rest.pt" in written(checkpoint)
    assert repr(read(run.store, checkpoint)["rest"]["value"]) == repr(after)


@pytest.mark.parametrize("value", [float("nan"), [1.5, float("nan")], {"a": (None, b"x", "y")}, 7])
def test_plain_values_that_stay_are_no_changes(run, value):
    run.save({"rest": {"value": value}})
    assert written(run.save({"rest": {"value": value}})) == {"state.json"}


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int8, torch.bfloat16, torch.float16, torch.int64, torch.complex64]
)
def test_tensors_of_any_type_and_layout_are_compared(run, dtype):
    tensor = torch.ones(5, 7, dtype=dtype)
    state = {"rest": [tensor, tensor.T, tensor[:, ::2], torch.ones((), dtype=dtype), tensor[:0]]}
    run.save(state)
    assert written(run.save(state)) == {"state.json"}
    tensor[4, 6] = 0
    checkpoint = run.save(state)
    assert "rest.pt" in written(checkpoint)
    assert not read(run.store, checkpoint)["rest"][2][4, 3]


def test_what_changed_at_a_safe_point_between_is_not_forgotten(run, state):
    run.save(state)
    state["model"]["weight"].fill_(5)
    run.freeze(state)
    run.freeze(state)  # the same as the safe point before; not as the checkpoint before
    checkpoint = run.save(state)
    assert "model.pt" in written(checkpoint)
    assert read(run.store, checkpoint)["model"]["weight"].unique().tolist() == [5]


def test_what_was_overwritten_before_a_freeze_broke_off_counts_as_changed(run, state):
    run.save(state)
    state["model"]["weight"].fill_(5)
    with pytest.raises(UnfreezableState):
        run.freeze(state | {"unfreezable": object()})
    checkpoint = run.save(state)
    assert "model.pt" in written(checkpoint)
    assert read(run.store, checkpoint)["model"]["weight"].unique().tolist() == [5]


def test_what_changed_before_a_save_that_failed_is_not_forgotten(run, state, monkeypatch):
    run.save(state)
    state["model"]["weight"].fill_(5)
    with monkeypatch.context() as patch:
        patch.setattr(archives.DurableFile, "finish", lambda _: (_ for _ in ()).throw(OSError(5)))
        with pytest.raises(Exception, match="checkpoint"):
            run.save(state)
    assert "model.pt" in written(run.save(state))


def test_what_changed_and_changed_back_is_written_and_then_recognised(run, state):
    first = run.save(state)
    state["model"]["weight"].fill_(5)
    run.freeze(state)
    state["model"]["weight"].fill_(0)
    second = run.save(state)
    assert homes(second)["model.pt"] == first.path.name
    assert (second.path / "model.pt").samefile(first.path / "model.pt")
    assert not list(second.path.glob("*.draft"))


def test_a_stream_that_begins_anew_is_written_whole(run, state):
    run.save(state)
    equity = Stream(EQUITY, segment_bytes=8 * 64)
    equity.append({"equity": torch.arange(200.0, dtype=torch.float64) + 1})
    checkpoint = run.save(state | {"equity": equity})
    assert {"equity-0x1.pt", "equity-1x1.pt", "equity-2x1.pt"} <= written(checkpoint)
    assert read(run.store, checkpoint)["equity"].column("equity")[0] == 1


def test_the_next_attempt_refers_to_what_the_one_before_wrote(run, state):
    first = run.save(state)
    later = Run(run.store.root, attempt=2)
    restored = later.restore(first)
    restored["equity"].append({"equity": torch.arange(99.0, dtype=torch.float64)})
    second = later.save(restored)
    expected = homes(first) | dict.fromkeys(homes(first), first.path.name)
    for name in ("best_model.pt", "equity-0x1.pt", "equity-1x1.pt", "equity-2x1.pt"):
        assert homes(second)[name] == expected[name]
    assert "equity-3x1.pt" in written(second)
    assert torch.equal(
        read(later.store, second)["equity"].column("equity"), restored["equity"].column("equity")
    )


def test_a_fork_refers_to_nothing_of_the_other_operation(run, state, tmp_path):
    first = run.save(state)
    fork = Run(tmp_path / "other")
    restored = fork.restore(first)
    assert set(homes(fork.save(restored)).values()) == {""}


def test_after_a_checkpoint_that_was_not_stored_the_next_is_whole(run, state):
    run.save(state)
    run.store.refer_to_none()
    assert set(homes(run.save(state)).values()) == {""}


def test_what_is_gone_or_was_tampered_with_is_written_again(run, state):
    first = run.save(state)
    (first.path / "best_model.pt").unlink()
    os.truncate(first.path / "equity-0x1.pt", 10)
    target = first.path / "equity-1x1.pt"
    target.rename(first.path / "elsewhere")
    target.symlink_to("elsewhere")
    second = run.save(state)
    assert {"best_model.pt", "equity-0x1.pt", "equity-1x1.pt"} <= written(second)
    verify(second.path, second.digest)
    assert torch.equal(
        read(run.store, second)["equity"].column("equity"), state["equity"].column("equity")
    )


def test_a_file_system_without_links_gets_whole_checkpoints(run, state, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    run.save(state)
    monkeypatch.setattr(os, "link", refused)
    second = run.save(state)
    assert set(homes(second).values()) == {""}
    verify(second.path, second.digest)


def test_a_whole_and_an_incremental_checkpoint_of_one_state_have_the_same_files(run, state):
    run.save(state)
    state["equity"].append({"equity": torch.arange(3000.0, dtype=torch.float64)})
    incremental = run.save(state)
    run.store.refer_to_none()
    assert run.save(state).artifacts[1:] == incremental.artifacts[1:]


def test_a_manifest_that_names_a_home_elsewhere_is_refused(run, state):
    checkpoint = run.save(state)
    manifest = checkpoint.path / "manifest.json"
    content = manifest.read_text()
    assert content.count('"home":""') or content.count('"home": ""')
    manifest.write_text(
        content.replace('"home":""', '"home":"../x"').replace('"home": ""', '"home": "../x"')
    )
    with pytest.raises(CheckpointCorrupted, match="is no name of a checkpoint's directory"):
        read_manifest(checkpoint.path)


def test_a_stream_inside_another_part_is_refused_by_its_place(run, state):
    with pytest.raises(Exception, match=r"state\.nested\.equity is a .*Stream"):
        run.save({"nested": {"equity": state["equity"]}})


def test_the_same_bytes_are_read_again_and_again(run, state):
    """Resuming twice from one checkpoint gives twins, whatever the first one did meanwhile."""
    first = run.save(state)
    one, other = Run(run.store.root, 2), Run(run.store.root, 3)
    for each in (one, other):
        restored = each.restore(first)
        restored["equity"].append({"equity": torch.arange(70.0, dtype=torch.float64)})
        restored["best_model"]["weight"].fill_(2)
        each.save(restored)
        verify(first.path, first.digest)
