"""What the other tool's checkpoints of agents are known to get wrong, and that ours do not."""

from dataclasses import replace
from importlib import import_module

import pytest

from tests.engines.contract import (
    Case,
    MachineDied,
    ScriptedSupervisor,
    attempt,
    require_same_end,
    undisturbed,
)
from tests.formats.originals import original
from tests.rl.cases import CASES
from trainops.files import digests
from trainops.files.directory import newest_healthy
from trainops.files.errors import DamagedFile
from trainops.files.verify import verify
from trainops.files.writing import write
from trainops.kinds.rl.files.exchange import read_rl
from trainops.runtime.checkpoint.manifest import Candidate

HERE, JOB = "tests.formats.test_rl_traps", "tests.rl.test_job"
TRAPS = {
    "`episode` means N finished in one file and N is next in another": [
        f"{JOB}:test_completed_and_next_episode_are_distinguished_from_open_ones",
        f"{JOB}:test_an_extended_run_loses_no_episode",
    ],
    "a stop in mid-episode logs the cut episode as a full one and feeds the curriculum": [
        f"{JOB}:test_an_episode_that_a_stop_cuts_is_neither_logged_nor_reported_to_the_curriculum",
        f"{JOB}:test_open_episodes_are_flushed_where_that_is_wished",
    ],
    "the status is completed even after an exception": [f"{JOB}:test_a_run_that_fails_says_so"],
    "a corrupt newest file stops the start though an older one is fine": [
        f"{HERE}:test_agents_fall_back_to_the_older_healthy_checkpoint_and_end_the_same",
        f"{HERE}:test_of_a_directory_the_newest_healthy_file_is_taken",
    ],
    "the file and its digest are two writes": [
        f"{HERE}:test_a_file_whose_digest_was_not_written_is_whole_and_none_is_refused_for_it",
    ],
    "ep99999 sorts after ep100000": [f"{HERE}:test_episodes_are_compared_as_numbers"],
    "substrate metadata is written but never compared": [
        f"{JOB}:test_checks_come_in_their_order",
        "tests.formats.test_rl_exchange:test_a_file_of_another_world_is_refused_with_both_values",
    ],
    "a smaller capacity fails after half the object is overwritten": [
        f"{JOB}:test_a_smaller_ring_is_refused_whole_and_a_fork_migrates_it",
    ],
    "epsilon decays after the save, so a resume repeats a decay": [
        f"{JOB}:test_epsilon_is_never_stepped_twice",
    ],
    "no random stream is saved": [
        "tests.engines.test_contract:test_stopping_changes_nothing",
        "tests.rl.test_matrix:test_stopped_and_killed_twice_it_ends_the_same",
    ],
    "tensor views drag their whole storage into the file": [
        f"{JOB}:test_no_tensor_of_a_state_drags_a_larger_storage_along",
    ],
}  # fmt: skip


@pytest.mark.parametrize("trap", TRAPS)
def test_each_trap_has_a_test(trap):
    for place in TRAPS[trap]:
        module, _, name = place.partition(":")
        assert callable(getattr(import_module(module), name)), place


@pytest.mark.slow
@pytest.mark.parametrize("name", ["recurrent-grid", "separate-grid"])
@pytest.mark.parametrize("damaged", ["model.pt", "learning.pt", "manifest.json"])
def test_agents_fall_back_to_the_older_healthy_checkpoint_and_end_the_same(name, damaged, tmp_path):
    (config,) = [config for known, config, _ in CASES if known == name]
    case = Case("rl", name, config, stops=())
    expected = undisturbed(case, tmp_path)
    first, second = ScriptedSupervisor(at=13, dies=True), ScriptedSupervisor()
    with pytest.raises(MachineDied):
        attempt(case, tmp_path / "run", first, every_steps=4)
    newest, older = first.checkpoints[::-1][:2]
    content = bytearray((newest.path / damaged).read_bytes())
    content[len(content) // 2] ^= 1
    (newest.path / damaged).write_bytes(content)
    attempt(case, tmp_path / "run", second, resume=first.checkpoints[::-1], number=2)
    assert [candidate for candidate, _ in second.bad] == [Candidate(newest.path, newest.digest)]
    assert second.progress[0].step == older.step == 8
    require_same_end(expected, [first, second])


@pytest.fixture
def directory(tmp_path):
    """Files of three episodes, as the other tool names them, and others beside them."""
    file, _ = read_rl(original("rl", tmp_path))
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    for episode in (9_999, 99_999, 100_000):
        write(replace(file, episode=episode), directory / f"checkpoint_ep{episode:05d}.pt")
    (directory / "checkpoint_ep999999.pt.part").write_text("being written")
    (directory / "notes.txt").write_text("")
    return directory


def test_episodes_are_compared_as_numbers(directory):
    assert max(directory.glob("*.pt")).name == "checkpoint_ep99999.pt", "as text"
    path, skipped = newest_healthy(directory)
    assert path.name == "checkpoint_ep100000.pt" and skipped == []
    assert read_rl(path)[0].name == path.name


def test_of_a_directory_the_newest_healthy_file_is_taken(directory):
    newest = directory / "checkpoint_ep100000.pt"
    newest.write_bytes(newest.read_bytes()[:-100])
    path, (problem,) = newest_healthy(directory)
    assert path.name == "checkpoint_ep99999.pt"
    assert problem.startswith("checkpoint_ep100000.pt: ") and "SHA-256" in problem
    for each in directory.glob("*.pt"):
        each.write_bytes(b"")
    with pytest.raises(DamagedFile, match="no healthy checkpoint: checkpoint_ep100000"):
        newest_healthy(directory)


def test_a_file_whose_digest_was_not_written_is_whole_and_none_is_refused_for_it(
    directory, monkeypatch
):
    """Death between the two writes: the digest of the file before it is gone by then."""
    path = directory / "checkpoint_ep100000.pt"
    file, _ = read_rl(path)

    def dies(path):
        raise MachineDied

    monkeypatch.setattr(digests, "write", dies)
    with pytest.raises(MachineDied):
        write(replace(file, epsilon=0.5), path)
    assert not digests.beside(path).exists() and verify(path).passed
    assert read_rl(path)[0].epsilon == 0.5
