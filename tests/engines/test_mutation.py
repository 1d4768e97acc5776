"""The contract notices every piece of state that a restore leaves out."""

from fnmatch import fnmatchcase

import pytest
import torch

from tests.engines.contract import CASES
from tests.engines.mutation import Mutations

# Pieces that a restore could leave out, and why that is right. Those called constant are checked
# to be the same in a new job, at every stop and at the end: there is nothing to bring back.
CONSTANT = {
    "optimizer*.param_groups.*": "set by the config; where a schedule moves one, it is noticed",
    "scheduler.*": "set by the config; what counts steps is noticed",
    "state.learning_rate": "in cases without a schedule",
    "state.*_accuracy": "in cases that measure none",
    "state.recipe": "set by the config",
    "state.num_examples": "follows from the data; another number is refused",
    "constants*": "measured on the same rows; that they are used is tested in test_training",
    "state.epochs_without_improvement": "in cases where every epoch was the best",
    "state.peak_equity": "in cases that only ever lost",
    "state.open_orders": "in cases that fill every order at the close it is placed at",
    "broker.orders*": "in cases that fill every order at the close it is placed at",
    "broker.account.*": "in cases without commission, refused orders or liquidations",
    "strategy": "in vector cases without a model",
    "strategy.identity": "in cases without a model",
    "strategy.remembered": "in vector cases, which remember nothing",
    "strategy.remembered.moods.calm": "never changed, to see that this is no harm",
    "server": "in strategies that remember nothing",
    "state.partition*": "follows from the config and the data",
    "state.rounds": "set by the config; a fork may tell another",
    "state.num_clients": "follows from the config and the data",
    "state.local_epochs": "set by the config",
    "state.monitor": "set by the config",
    "state.mode": "set by the config",
    "state.privacy": "in cases that keep none",
    "state.clients": "in cases that keep privacy, and tell no figures of clients",
    "state.num_chosen": "in cases where it is the same in each round",
    "state.client": "in cases that stop at one and the same client",
    "state.clients_done": "in cases that stop where none of the round is done",
    "clients.done": "in cases that stop where none of the round is done",
    "random*": "streams that the case does not draw from",
    "state.provenance.*": "set by the config and the world",
    "environment.*": "in cases whose worlds and stages do not move it",
    "state.stage_changes": "in cases without stages",
    "open_episodes.chosen": "in cases that do not choose stages by entropy",
    "state.tallies*": "in worlds that have none",
    "learning.*": "in cases that draw from no such stream, or have no such ring",
    "novelty*.fixed.*": "drawn when the job is made",
    "novelty*.optimizer.param_groups.*": "set by the config",
    "state.stages": "in cases without stages",
    "curriculum*": "in cases without stages",
    "mixed.schedule": "set by the code; a state of another one is refused",
}
RECOMPUTED = {
    "scheduler.*._last_lr": "what the last step set, for people who ask; the next writes it anew",
    "optimizer*.param_groups.*.lr": "of agents: a function of the step, set before each update",
    "state.evaluations.newest*": "the last step evaluates anew",
    "state.privacy.*_epsilon": "each level's share, for people who read; the sums are compared",
    "state.privacy.epsilon": "compared with a ledger that outlives the process: tests/federated",
    "state.clients.*.*": "for people who ask; the client's next round writes them anew",
    "state.num_chosen": "a function of the round; compared where it is another's",
    "state.chosen": "a function of the round; compared where it is another's",
    "state.place": "of loops: for people; the next step writes it anew",
    "state.metric": "of loops: yielded at this step; the next one writes it anew",
    "state.metrics.*": "of loops: newest points, for people; the next ones write them anew",
    "state.is_finished": "of loops: true in final checkpoints alone",
    "state.epoch": "of loops: counted from the loops",
    "state.examples*": "of loops: set where a loop is entered; another number is refused",
    "state.course.loops.*.length": "set where a loop is entered",
    "state.course.loops.*.parent": "set where a loop is entered",
    "state.course.loops.*.latest_length": "of loops: estimates how many steps are left",
    "state.course.loops.*.total": "of loops: ends those with limits.max_duration in batches",
    "mixed_b.*": "of datasets that are read again: the receipt says if that leads elsewhere",
    "mixed_c.before*": "of loops around another one, as read is",
    "read.now.position": "of loops around another one, but between passes, where it is 0",
    "read.now.order": "drawn where a pass begins",
    "read.is_over": "of loops that are not around another one, as mixed_c is not",
    "state.is_budget_spent": "asked anew of the ledger",
}
# Clients begin global streams anew, so those are needed only where a model draws from them.
DRAWING_NOTHING = {"federated-images", "federated-segmentation", "federated-user"}
# Steps in the middle of an epoch, where no sum, counter or moment is zero; at an epoch's end, where
# the metric is known; and, where there is one, after an epoch that was not the best.
STOPS = {
    "nested": (2, 5, 8),  # within a loader, after it, at an epoch's end
    "loaders": (14, 20, 29),  # in both loops, and between two iterations of one
    "accumulation-cosine": (4, 9),
    "early-stopping": (7, 20),
    "warmup": (7, 10),
    "step-drops": (7, 10),
    "two-optimizers": (7, 10),
    "digits": (2, 3),
    "tabular-regression": (3, 4),
    "tabular-classification": (3, 8),
    # Bars at which orders wait, trades are open, and trades have been closed.
    "vector-bracket": (9, 10),
    "vector-same-close": (12, 20),
    "event-everything": (11, 14, 22),
    "event-same-close": (8, 12, 21),
    "price-direction": (7, 15, 17),
    "event-indicators": (8, 9, 22),
    "vector-rotation": (7, 8, 15),
    "event-rotation": (7, 8, 15),
    "vector-rotation-same-close": (4, 7, 11, 16),
    "event-rotation-same-close": (4, 7, 11, 16),
    # In the midst of episodes and of a rollout, after evaluations of which one was not the best;
    # the later one first, as less is left to run from there.
    "dqn-cartpole": (14, 7),
    "prioritized-grid": (14, 7),
    "recurrent-grid": (21, 16, 11, 5),
    "sequences-grid": (21, 19, 11, 5),
    "separate-grid": (17, 14, 7),
    "ppo-cartpole": (15, 10),
    "images": (4, 6),
    "segmentation-uploaded": (4, 6),
    "segmentation-phantoms": (3, 4),
    # In the middle of a client, with others done, and between two rounds.
    "federated-none": (9, 12),
    "federated-images": (7, 8),
    "federated-segmentation": (3, 4),
    "federated-sample": (11, 16),
    "federated-user": (1, 4),
    "federated-hybrid": (3, 8),
    "federated-budget": (1, 4),
}


# Hundreds of pieces, each left out of a run of its own; one of agents is in every run of the tests.
LONG = (
    "prioritized-grid", "recurrent-grid", "sequences-grid", "separate-grid", "ppo-cartpole",
    "segmentation-uploaded", "segmentation-phantoms", "federated-segmentation",
    # The pieces of another case, with other data, prices or another schedule.
    "images", "tabular-regression", "tabular-classification", "price-direction", "step-drops",
    "warmup", "vector-same-close", "vector-rotation-same-close", "event-rotation-same-close",
    "federated-images", "federated-budget",
)  # fmt: skip


def marked(case):
    marks = [pytest.mark.exhaustive] if case.name in LONG else []
    return pytest.param(case, marks=marks, id=str(case))


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="its lists are those of a CPU")
@pytest.mark.parametrize("case", [marked(case) for case in CASES])
def test_every_piece_of_state_is_needed(case, tmp_path):
    mutations = Mutations(case, tmp_path, STOPS[case.name])
    for step, state in mutations.states.items():
        assert mutations.keeps_contract(step, state), "nothing was left out"
    for piece in mutations.pieces():
        name = ".".join(map(str, piece))
        if is_listed(name, CONSTANT) and mutations.is_constant(piece):
            continue
        if mutations.is_noticed(piece) or is_listed(name, RECOMPUTED):
            continue
        if piece[0] == "random" and case.name in DRAWING_NOTHING:
            continue
        raise AssertionError(f"leaving out {name} goes unnoticed")


def is_listed(name, patterns):
    return any(fnmatchcase(name, pattern) for pattern in patterns)
