"""What ranks divide, compare and report, without processes."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from trainops.kinds.loop import ranks
from trainops.kinds.loop.course import Course
from trainops.kinds.loop.means import Means
from trainops.kinds.loop.run import Run
from trainops.process.rank_handle import RankHandle
from trainops.process.rank_process import _own_device
from trainops.process.rank_protocol import RankError
from trainops.runtime import rank_state
from trainops.runtime.errors import (
    ConfigError,
    IncompatibleState,
    InputError,
    RankFailed,
    RankLost,
    RanksDiverged,
)
from trainops.runtime.ranks import Devices, split


def loader(length, devices, **options):
    run = Run(Course(lambda: None), seed=3, device=torch.device("cpu"), inputs={}, devices=devices)
    dataset = TensorDataset(torch.arange(length))
    return run.loader("train", dataset, batch_size=2, **options)


def taken(length, num_ranks, first=0, **options):
    """Return the numbers of the examples in the batches of each rank."""
    found = []
    for rank in range(num_ranks):
        passes = loader(length, Devices(rank, num_ranks), **{"shuffle": False, **options})
        found.append([each[0].tolist() for each in passes.source.items(0, first)])
        assert len(found[-1]) == len(passes) - first
    return found


def test_each_rank_takes_its_own_batches():
    assert taken(8, 2) == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    assert taken(8, 2, first=1) == [[[4, 5]], [[6, 7]]]


@pytest.mark.parametrize("length", [8, 9, 11, 13])
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("shuffle", [False, True])
def test_all_ranks_have_equally_many_batches_and_together_every_example(length, num_ranks, shuffle):
    of_ranks = taken(length, num_ranks, shuffle=shuffle)
    assert len({len(each) for each in of_ranks}) == 1
    seen = [number for each in of_ranks for batch in each for number in batch]
    assert set(seen) == set(range(length)) and len(seen) < length + 2 * num_ranks
    dropped = taken(length, num_ranks, shuffle=shuffle, drop_last=True)
    seen = [number for each in dropped for batch in each for number in batch]
    assert len(seen) == len(set(seen)) > length - 2 * num_ranks - 1


def test_a_dataset_without_a_batch_for_each_rank_is_refused():
    with pytest.raises(InputError, match="has no batch for each of 3 processes"):
        loader(4, Devices(0, 3), drop_last=True)


@pytest.mark.parametrize(
    "options",
    [
        {"weights": [1.0, 2.0, 3.0, 4.0, 5.0]},
        {"lengths": [3, 1, 2, 5, 4]},
        {"sampler": lambda seed, number: [4, 2, 0, 1, 3, 3, 3, 2, 0][: 7 + number]},
    ],
)
def test_ranks_share_the_batches_of_every_order(options):
    whole = [each[0].tolist() for each in loader(5, Devices(0, 1), **options).source.items(1, 0)]
    of_ranks = [
        [each[0].tolist() for each in loader(5, Devices(rank, 2), **options).source.items(1, 0)]
        for rank in range(2)
    ]
    padded = [*whole, *whole[: len(whole) % 2]]
    assert of_ranks == [padded[0::2], padded[1::2]]


def test_a_map_style_dataset_does_not_shard_itself():
    with pytest.raises(InputError, match="got shards_itself for 'train', whose dataset is map-"):
        loader(4, Devices(0, 2), shards_itself=True)


class Damaged(Dataset):
    """Examples 0 and 3 cannot be decoded."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        if index in (0, 3):
            raise ValueError("no PNG signature")
        return index


def skipping(rank, num_ranks):
    devices = Devices(rank, num_ranks)
    run = Run(Course(lambda: None), seed=3, device=torch.device("cpu"), inputs={}, devices=devices)
    loader = run.loader("train", Damaged(), batch_size=2, shuffle=False, skip_undecodable=True)
    return run, loader.source


def test_skipped_examples_are_counted_over_all_ranks_each_once_in_a_pass():
    """Rank 1 repeats the first batch, in which an example cannot be decoded."""
    made = [skipping(rank, 2) for rank in range(2)]
    batches = [[each.tolist() for each in source.items(0, 0)] for _, source in made]
    assert batches == [[[1], [4, 5]], [[2], [1]]]
    counts = [each.num_unreported for _, each in made]
    assert counts == [1, 1]
    for run, source in made:
        assert run.new_counts(lambda own: [sum(counts)]) == {"train_undecodable": 2.0}
        assert run.new_counts(lambda own: own) == {} and source.num_unreported == 0


def test_a_further_rank_does_not_count_what_rank_0_has_skipped():
    _, first = skipping(0, 1)
    list(first.items(0, 0))
    state = first.state_dict()
    assert state == {"undecodable": 2, "reported": 0, "rank": 0}
    of_ranks = []
    for rank in range(2):
        _, source = skipping(rank, 2)
        source.load_state_dict(state)
        of_ranks.append(source.num_unreported)
    assert of_ranks == [2, 0]
    earlier = {"undecodable": 2, "reported": 1}  # of a version without ranks
    first.load_state_dict(earlier)
    assert first.report(first.num_unreported) == {"train_undecodable": 2.0}


def test_points_are_means_over_all_ranks():
    other = [5.0, 2.0]  # of the other rank
    means = Means(2, lambda numbers: [a + b for a, b in zip(numbers, other, strict=True)])
    assert means.add(1, {"loss": 1.0}) == {"loss": (1.0 + 5.0) / 3}
    assert means.add(2, {"loss": 2.0}) == {}
    assert means.add(3, {"loss": 3.0}) == {"loss": (2.0 + 3.0 + 5.0) / 4}


class Job:
    step = 4

    def __init__(self, **kept):
        self.kept = kept

    def replicated(self):
        return ranks.replicated(self.kept)


def trained(*, weight=1.0, steps=2):
    model = nn.Sequential(nn.Linear(2, 2, dtype=torch.bfloat16), nn.BatchNorm1d(2))
    nn.init.constant_(model[0].weight, weight)
    nn.init.zeros_(model[0].bias)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    for _ in range(steps):
        model[0].weight.grad = torch.ones_like(model[0].weight)
        optimizer.step()
    return Job(model=model, optimizer=optimizer, counts={"own": weight})


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (trained(weight=1.0078125), "model"),  # by one bit
        (trained(steps=3), "model, optimizer"),
        (Job(model=trained().kept["model"]), "optimizer"),
    ],
)
def test_what_differs_between_ranks_is_named(other, named):
    own = rank_state.fingerprints(trained())
    rank_state.require_equal(own, rank_state.fingerprints(trained()), rank=1, step=4)
    with pytest.raises(RanksDiverged, match=f"after step 4, {named} differs between rank 0 and"):
        rank_state.require_equal(own, rank_state.fingerprints(other), rank=1, step=4)


def test_buffers_and_dicts_are_those_of_the_rank():
    kept = trained().kept
    state = ranks.rank_state_of(kept)
    names = ["1.running_mean", "1.running_var", "1.num_batches_tracked"]
    assert list(state) == ["model", "counts"] and list(state["model"]) == names
    ranks.load_rank_state(kept, {"model": dict(state["model"]), "counts": {"own": 5}})
    assert kept["counts"] == {"own": 5}
    with pytest.raises(IncompatibleState, match="other objects"):
        ranks.load_rank_state(kept, {"counts": {}})


def test_streams_of_ranks_differ_and_follow_from_the_seed():
    def drawn(*arguments):
        rank_state.seed_rank(*arguments)
        return torch.rand(3).tolist()

    one, two = Devices(1, 3), Devices(2, 3)
    assert drawn(7, one) == drawn(7, one)
    different = [drawn(7, one), drawn(7, two), drawn(8, one), drawn(7, one, 5)]
    assert len({tuple(each) for each in different}) == 4


def test_a_pass_continues_at_the_same_example_under_another_number_of_ranks():
    course = {"open": ["epoch", "train"], "loops": {"epoch": {"taken": 2}, "train": {"taken": 5}}}
    found = ranks.rescaled(course, {"train"}, before=2, now=3)
    assert found["loops"] == {"epoch": {"taken": 2}, "train": {"taken": 3}}
    assert ranks.rescaled(course, {"train"}, before=2, now=2) is course


def test_each_rank_sees_its_own_gpu_and_too_few_are_refused():
    gpus = [_own_device("GPU-1,GPU-2", Devices(rank, 2)) for rank in range(2)]
    assert gpus == ["GPU-1", "GPU-2"]
    with pytest.raises(ConfigError, match=r"processes: got 3; this attempt has 2 GPUs \(1,2\)"):
        _own_device("1,2", Devices(0, 3))


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (-9, "PROCESS_KILLED", "rank 1 ended by SIGKILL"),
        (-11, "SEGMENTATION_FAULT", "rank 1 ended by SIGSEGV"),
        (70, "PLATFORM_ERROR", "rank 1 ended with exit code 70"),
        (3, "PROCESS_EXITED", "rank 1 ended with exit code 3"),
    ],
)
def test_the_end_of_a_process_is_reported_by_its_status(status, code, message):
    handle = RankHandle(1, 0, None, Path(), 0, status=status)
    problem = handle.problem()
    assert isinstance(problem, RankLost) and (problem.code, str(problem)) == (code, message)
    handle.error = RankError(1.0, "NON_FINITE_LOSS", "it became NaN", "")
    assert isinstance(handle.problem(), RankFailed)


def test_the_parts_of_ranks_are_distinguished():
    state = {"state": {}, "rank": 1, "rank1": 2, "rank12": 3, "rank0": 4}
    assert split(state) == ({"state": {}, "rank": 1, "rank0": 4}, {"rank1": 2, "rank12": 3})


def test_names_of_ranks_cannot_be_kept():
    run = Run(Course(lambda: None), seed=0, device=torch.device("cpu"), inputs={})
    with pytest.raises(InputError, match="rank1"):
        run.keep("rank1", {})
    model = nn.Linear(1, 1)
    assert run.wrap(model) is model and (run.rank, run.num_ranks) == (0, 1)


class Tied(nn.Module):
    """Two names of one weight, and a buffer."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(3, 2), nn.Linear(2, 3, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("seen", torch.zeros(()))


def test_weights_are_no_buffers_by_any_of_their_names():
    assert ranks.rank_state_of({"model": Tied()})["model"].keys() == {"seen"}


def test_a_part_of_an_earlier_version_has_tied_weights_and_is_put_back():
    model = Tied()
    ranks.put_back(model, {"head.weight": torch.ones(3, 2), "seen": torch.tensor(7.0)})
    assert model.seen == 7 and bool((model.embedding.weight == 1).all())
    with pytest.raises(RuntimeError, match="seen"):  # a whole state lacks nothing
        ranks.put_back(
            model, {name: each for name, each in model.state_dict().items() if name != "seen"}
        )
