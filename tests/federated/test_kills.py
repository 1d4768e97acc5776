"""Killed at every client epoch, and between writing a release down and making it."""

import pytest

from tests.engines.contract import merged_curve, require_same_end
from tests.federated.runs import PRIVACY, ServerLedger, case, go
from tests.thinning import every_step
from trainops.kinds.federated.local_training import LocalTraining

STEPS = 3 * 4 * 2  # rounds, clients, epochs
every_mode = pytest.mark.parametrize("mode", PRIVACY)


@pytest.fixture
def trained(monkeypatch):
    """The client epochs that were trained, in order: round, client, epoch."""
    trained, train = [], LocalTraining.train

    def watched(local_training, noise, step):
        trained.append((local_training.number, local_training.client, local_training.epoch))
        return train(local_training, noise, step)

    monkeypatch.setattr(LocalTraining, "train", watched)
    return trained


@pytest.mark.slow
@every_mode
def test_killed_in_the_middle_it_ends_exactly_and_spends_nothing_twice(mode, tmp_path, trained):
    require_kill_changes_nothing(mode, tmp_path, trained, at=[11])


@pytest.mark.slow
@every_step
@every_mode
def test_killed_at_every_client_epoch_it_ends_exactly(mode, stride, tmp_path, trained):
    at = range(1 + list(PRIVACY).index(mode) % stride, STEPS + 1, stride)
    require_kill_changes_nothing(mode, tmp_path, trained, at=at)


def require_kill_changes_nothing(mode, tmp_path, trained, at):
    whole, case_ = ServerLedger(), case(mode)
    expected = go(case_, tmp_path / "whole", whole)
    order = list(trained)
    assert order == [(r, c, e) for r in (1, 2, 3) for c in range(4) for e in (0, 1)]
    for step in at:
        trained.clear()
        ledger, root = ServerLedger(), tmp_path / str(step)
        first = go(case_, root, ledger, at=step, dies=True, every_steps=1)
        assert len(trained) == step
        saved = first.checkpoints[::-1]
        second = go(case_, root, ledger, resume=saved, number=2)
        require_same_end(expected, [first, second])
        assert trained == [*order[:step], *order[step - 1 :]], "only what was not saved, again"
        assert ledger.spent() == whole.spent()


@pytest.mark.slow
@every_step
@pytest.mark.parametrize("mode", ["sample", "user", "hybrid"])
def test_killed_after_any_entry_was_written_it_is_met_again(mode, stride, tmp_path):
    whole, case_ = ServerLedger(), case(mode)
    expected = go(case_, tmp_path / "whole", whole)
    first_write = max(1, len(whole.spent()) - len(whole.releases()))  # of all rates at one go
    for count in range(first_write - 1, len(whole.spent()), stride):
        ledger, root = ServerLedger(), tmp_path / str(count)
        ledger.dies_after = count
        first = go(case_, root, ledger, dies=True, every_steps=1)
        assert len(ledger.spent()) == count + 1
        second = go(case_, root, ledger, resume=first.checkpoints[::-1], number=2)
        require_same_end(expected, [first, second])
        assert ledger.spent() == whole.spent()


@pytest.mark.slow
@every_mode
def test_from_a_checkpoint_some_way_back_the_same_noise_costs_nothing(mode, tmp_path):
    whole, case_ = ServerLedger(), case(mode)
    expected = go(case_, tmp_path / "whole", whole, every_steps=1)
    for back in expected.checkpoints[:-1:5]:
        again = go(case_, tmp_path / f"from-{back.step}", whole, resume=[back], number=2)
        assert again.checkpoints[-1].artifacts == expected.checkpoints[-1].artifacts
        assert merged_curve([expected, again]) == expected.curve
