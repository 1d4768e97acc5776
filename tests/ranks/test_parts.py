"""What ranks divide, compare and report, without processes."""

import os
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import distributed, nn
from torch.utils.data import Dataset, TensorDataset

from trainops.kind import KINDS
from trainops.kinds.loop import ranks
from trainops.kinds.loop.course import Counts, Course
from trainops.kinds.loop.means import Means
from trainops.kinds.loop.rank_changes import planned_ranks
from trainops.kinds.loop.run import Run
from trainops.process import rank_process
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
    found = run.loader("train", dataset, batch_size=2, **options)
    found.source._gather = None  # there are no other processes
    return found


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
    train = {"taken": 3, "counted": 10, "length": None}
    assert found["loops"] == {"epoch": {"taken": 2, "length": None}, "train": train}
    assert ranks.rescaled(course, {"train"}, before=2, now=2) is course


def test_lengths_of_another_number_of_ranks_refuse_no_later_checkpoint():
    """A validation that was run by two ranks is not entered again before the next checkpoint."""
    examples = TensorDataset(torch.arange(8))

    def new_run(num_ranks):
        course, devices = Course(lambda: None), Devices(0, num_ranks)
        run = Run(course, seed=3, device=torch.device("cpu"), inputs={}, devices=devices)
        return run, course, run.loader("train", examples), run.loader("val", examples)

    def after_a_batch(course, epochs, train):
        """Return the state after one batch more, of the next epoch."""
        batches = iter(train)
        next(epochs), next(batches)
        state = course.to_state()
        batches.close(), epochs.close()
        return state

    run, course, train, validation = new_run(2)
    next(epochs := iter(run.epochs(2)))
    assert (len([*train]), len([*validation])) == (4, 4)
    by_two = after_a_batch(course, epochs, train)

    run, course, train, _ = new_run(1)
    course.resume(ranks.rescaled(by_two, {"train", "val"}, before=2, now=1))
    by_one = after_a_batch(course, iter(run.epochs(2)), train)
    assert (by_one["loops"]["train"]["length"], by_one["loops"]["val"]["length"]) == (8, None)

    run, *_ = new_run(1)
    run.require_same_lengths(by_one["loops"])
    with pytest.raises(IncompatibleState, match="had 4 batches; now it has 8"):
        run.require_same_lengths(by_two["loops"])


@pytest.mark.parametrize("numbers", [(2, 4), (3, 2), (2, 4, 3)])
def test_totals_count_each_batch_once_with_another_number_of_ranks(numbers, monkeypatch):
    """A round was taken by the first number of ranks; the numbers after it take the rest."""
    monkeypatch.setattr(ranks, "total_of", lambda *_: list)
    first, *others = numbers
    state = {"open": ["train"], "loops": {"train": asdict(Counts("", 1, 1, 1, 2))}}
    seen = [[number] for number in range(first)]
    for before, now in pairwise(numbers):
        state = ranks.rescaled(state, {"train"}, before=before, now=now)
    for rank in range(others[-1]):
        course = Course(lambda: None)
        run = Run(course, seed=3, device=torch.device("cpu"), inputs={},
                  devices=Devices(rank, others[-1]))  # fmt: skip
        batches = run.loader("train", TensorDataset(torch.arange(7)), shuffle=False)
        course.resume(state)
        found = [[int(each[0])] for each in batches if run.totals(batches, one=1)["one"]]
        assert course.to_state()["loops"]["train"].get("counted") == first
        seen += found
        list(batches)
        assert "counted" not in course.to_state()["loops"]["train"]
    assert sorted(seen) == [[number] for number in range(7)]


@pytest.mark.parametrize("option", ["sampler", "batch_sampler"])
def test_ranks_with_different_orders_of_a_sampler_are_refused(option, monkeypatch):
    """What depends on the hash of texts, as a walk through a set, is another order in each rank."""
    others = []
    monkeypatch.setattr(ranks, "gather_of", lambda *_: lambda own: [own, *others])
    orders = {"sampler": [[0, 1, 2, 3], [3, 2, 1, 0]], "batch_sampler": [[[0, 1]], [[0], [1]]]}
    digests = []
    for order in orders[option]:
        run = Run(Course(lambda: None), seed=3, device=torch.device("cpu"), inputs={},
                  devices=Devices(0, 2))  # fmt: skip
        given = {option: lambda seed, number, order=order: order}
        passes = run.loader("train", TensorDataset(torch.arange(4)), **given)
        digests.append([passes.source._batches.digest(0)])
        list(passes.source.items(0, 0))
    others.append(digests[0])
    with pytest.raises(InputError, match="the ranks have different orders of 'train' in pass 0"):
        list(passes.source.items(0, 0))


@pytest.mark.parametrize(
    ("config", "before", "planned"),
    [
        ({"processes": 2}, 2, 2),
        ({"processes": 2}, 3, 2),
        ({"processes": 2, "nodes": 3, "min_nodes": 2}, 4, 4),
        ({"processes": 2, "nodes": 3, "min_nodes": 2}, 2, 6),
        ({"nodes": 3, "min_nodes": 1}, 3, 3),
        ({"nodes": 3, "min_nodes": 1}, 1, 1),
        ({"nodes": 3, "min_nodes": 1}, 4, 3),
        ({}, 2, 1),
    ],
)
def test_a_state_is_checked_for_the_ranks_of_the_config(config, before, planned):
    parsed = KINDS["loop"].parse_config({"recipe": "digits_loop", **config})
    assert planned_ranks(parsed, before) == planned


def test_totals_of_loops_of_several_loaders_are_refused():
    run = Run(Course(lambda: None), seed=3, device=torch.device("cpu"), inputs={})
    one = run.loader("one", TensorDataset(torch.arange(4)))
    several = run.loaders({"one": one, "two": run.loader("two", TensorDataset(torch.arange(4)))})
    next(iter(several))
    with pytest.raises(InputError, match=r"totals of the loop 'loaders'; allowed: loops of run.l"):
        run.totals(several, loss=1.0)
    with pytest.raises(InputError, match=r"totals of the loader 'one', part of 'loaders'"):
        run.totals(one, loss=1.0)


def test_each_rank_sees_its_own_gpu_and_too_few_are_refused():
    gpus = [_own_device("GPU-1,GPU-2", Devices(rank, 2)) for rank in range(2)]
    assert gpus == ["GPU-1", "GPU-2"]
    with pytest.raises(ConfigError, match=r"processes: got 3; this attempt has 2 GPUs \(1,2\)"):
        _own_device("1,2", Devices(0, 3))


@pytest.mark.parametrize(("visible", "own"), [(None, "1"), ("5,7", "7"), ("", "")])
def test_ranks_without_the_variable_of_gpus_share_those_of_the_machine(monkeypatch, visible, own):
    """As in a check of a recipe, which no worker places."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(rank_process, "choose_device", lambda name: torch.device("cpu"))
    monkeypatch.setattr(distributed, "init_process_group", lambda *given, **named: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible or "")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    config = KINDS["loop"].parse_config({"recipe": "digits_loop", "processes": 2})
    rendezvous = SimpleNamespace(store=lambda devices: None)
    rank_process.join(Devices(1, 2), config, rendezvous)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == own
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        with pytest.raises(ConfigError, match=r"processes: got 3; this attempt has 2 GPUs \(0,1\)"):
            rank_process.join(Devices(0, 3), config, rendezvous)


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
