"""Iterable datasets: continued by their state, or read again; exact at every stop."""

import multiprocessing
import random
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from tests.loop.datasets import Buffered, Share, StatefulStream, Stream, drawn
from tests.thinning import quick_some, some_of
from trainops.kinds.loop.course import Counts, Course
from trainops.kinds.loop.run import Run
from trainops.kinds.loop.seeding import seed_of, start_streams
from trainops.kinds.loop.stream_positions import fingerprint
from trainops.runtime.errors import IncompatibleState, InputError, NotExact

PAGE = Path(__file__).parents[2] / "docs/loaders.md"
WORKERS = [
    {},
    {"num_workers": 1},
    {"num_workers": 2, "prefetch_factor": 3},
    {"num_workers": 2, "persistent_workers": True},
]


def new_run():
    return Run(Course(lambda: None), seed=3, device=torch.device("cpu"), inputs={})


def trains(make_dataset, encloses=False, breaks_at=None, looks_ahead=False, **options):
    """Return a loop that trains on every batch; `encloses`: and stops within its iteration."""

    def train(run, parameters):
        model = run.keep("model", nn.Linear(4, 1))
        optimizer = run.keep("optimizer", torch.optim.Adam(model.parameters()))
        batches = run.loader("train", make_dataset(), batch_size=3, **options)
        if looks_ahead:
            batches.look_ahead()
        counts, within = run.keep("counts", {}), run.steps("within", 2)
        for _ in run.epochs(3):
            counts["batch"] = -1
            for batch in batches:
                counts["batch"] += 1
                loss = model(batch).square().mean() + torch.rand(())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if not encloses:
                    yield {"train_loss": loss}
                for _ in within if encloses else ():
                    yield {"train_loss": batch.sum()}
                if counts["batch"] == breaks_at:
                    break

    return train


def by_hand(num_passes, length=10, batch_size=3):
    """Return what a loader without worker processes yields, by a plain loop."""
    found = []
    for number in range(num_passes):
        batches, stream = [], iter(range(length))
        while True:
            start_streams(f"3/train/pass {number}/batch {len(batches)}")
            examples = [drawn(index) for _, index in zip(range(batch_size), stream, strict=False)]
            if not examples:
                break
            batches.append(torch.stack(examples).tolist())
        found.append(batches)
    return found


def test_batches_draw_from_the_seed_and_their_number():
    loader = new_run().loader("train", Stream(), batch_size=3)
    assert [[each.tolist() for each in loader] for _ in range(2)] == by_hand(2)
    short = new_run().loader("train", Stream(), batch_size=3, drop_last=True)
    assert [each.tolist() for each in short] == by_hand(1)[0][:3]
    with pytest.raises(TypeError, match="has no length"):
        len(loader)


@pytest.mark.parametrize("options", quick_some(WORKERS[1:], every=3))
def test_worker_processes_are_seeded_by_their_number_in_each_pass(options):
    loader = new_run().loader("train", Stream(7), batch_size=2, **options)
    found = [[each.tolist() for each in loader] for _ in range(2)]
    num_workers = options["num_workers"]
    for number, batches in enumerate(found):
        shares = []
        for worker in range(num_workers):
            indices = range(worker, 7, num_workers)
            shares.append([])
            for at, first in enumerate(range(0, len(indices), 2)):
                start_streams(f"3/train/pass {number}/worker {worker}/batch {at}")
                shares[-1].append([drawn(each).tolist() for each in indices[first : first + 2]])
        rounds = range(max(map(len, shares)))
        assert batches == [each[at] for at in rounds for each in shares if at < len(each)]


class Stateful(IterableDataset):
    """Numbers from the one that was loaded, once, else from 0."""

    number = start = 0

    def state_dict(self):
        return self.number

    def load_state_dict(self, state):
        self.start = state

    def __iter__(self):
        first, self.start = self.start, 0
        for number in range(first, 20):
            self.number = number + 1
            yield number


class Numbers(IterableDataset):
    """Numbers of a range, which worker processes divide as the documentation of torch does."""

    def __init__(self):
        self.start, self.end = 0, 10

    def __iter__(self):
        yield from map(float, range(self.start, self.end))


def take_part(number):
    info = get_worker_info()
    size = -(-(info.dataset.end - info.dataset.start) // info.num_workers)
    info.dataset.start += number * size
    info.dataset.end = min(info.dataset.start + size, info.dataset.end)


class Four(Numbers):
    def __iter__(self):
        yield from (torch.full((4,), number) for number in super().__iter__())


@pytest.mark.slow
def test_worker_processes_divide_their_dataset_by_a_function(require_exact):
    options = {"batch_size": 2, "num_workers": 2, "worker_init_fn": take_part}
    found = [each.tolist() for each in new_run().loader("train", Numbers(), **options)]
    assert found == [each.tolist() for each in DataLoader(Numbers(), **options)]
    assert sorted(number for each in found for number in each) == list(range(10))
    for persistent in (False, True):
        require_exact(
            trains(Four, num_workers=2, worker_init_fn=take_part, persistent_workers=persistent),
            stops=[1, 5],
        )


def test_a_loader_leaves_the_global_streams_alone():
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    expected = torch.rand(1).item(), random.random(), np.random.random()
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    list(new_run().loader("train", Stream()))
    list(new_run().loader("train", StatefulStream()))
    assert (torch.rand(1).item(), random.random(), np.random.random()) == expected


CASES = [
    (make, encloses, breaks_at)
    for make in (StatefulStream, Stream, Buffered)
    for encloses, breaks_at in ((False, None), (True, None), (False, 1), (True, 2))
]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "encloses", "breaks_at"), quick_some(CASES, every=5))
def test_a_stop_at_any_step_changes_nothing(require_exact, make, encloses, breaks_at):
    require_exact(trains(make, encloses, breaks_at))


AHEAD = [
    (make, encloses, breaks_at, length)
    for make in (StatefulStream, Stream)
    for encloses, breaks_at, length in ((False, None, 10), (True, None, 9), (True, 1, 10))
]


@pytest.mark.parametrize(("length", "options"), [(9, {}), (10, {}), (7, {"num_workers": 2})])
def test_the_last_batch_is_known_by_reading_ahead(length, options):
    loader = new_run().loader("train", Stream(length), batch_size=3, **options)
    expected = [each.tolist() for each in loader]
    ahead = new_run().loader("train", Stream(length), batch_size=3, **options)
    ahead.look_ahead()
    assert [(each.tolist(), ahead.is_at_end) for each in ahead] == [
        (each, number == len(expected)) for number, each in enumerate(expected, start=1)
    ]
    assert [ahead.is_at_end for _ in ahead] == [each == expected[-1] for each in expected]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "encloses", "breaks_at", "length"), quick_some(AHEAD, every=3))
def test_a_stop_changes_nothing_with_reading_ahead(
    require_exact, make, encloses, breaks_at, length
):
    require_exact(trains(lambda: make(length), encloses, breaks_at, looks_ahead=True))


@pytest.mark.parametrize(
    ("number", "options", "problem"),
    [
        (1, {}, "a limit of 1 batches for 'train', whose dataset has a state; allowed: 2 or more"),
        (2, WORKERS[3], "and persistent_workers; allowed: persistent_workers=False"),
    ],
)
def test_a_limit_to_which_a_resume_cannot_return_is_refused(number, options, problem):
    loader = new_run().loader("train", StatefulStream(), batch_size=3, **options)
    with pytest.raises(InputError, match=problem):
        loader.limit_to(number)
    new_run().loader("train", Stream(), batch_size=3, **options).limit_to(number)


def test_fewer_ranks_begin_the_next_pass_where_their_limit_is_exceeded():
    """Two ranks have taken 6 rounds, which are 12 batches of one rank: 10 are its limit."""
    course = Course(lambda: None)
    loader = Run(course, seed=3, device=torch.device("cpu"), inputs={}).loader("train", Stateful())
    loader.look_ahead()
    loader.limit_to(10)
    course.resume({"open": ["train"], "loops": {"train": asdict(Counts("", 1, 1, 12, None))}})
    of_ranks = {"num_ranks": 2, "items": 6, "shift": 0, "read": 12}
    state = {"pass": 0, "taken": 6, "is_over": False, "now": 12, "before": 10}
    loader.source.load_state_dict(state | of_ranks)
    assert not list(loader)
    assert [int(each) for each in loader] == list(range(10))


IN_WORKERS = [(make, each) for make in (Stream, StatefulStream, Share) for each in WORKERS[1:]]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "options"), some_of(IN_WORKERS, every=3))
def test_a_stop_changes_nothing_with_worker_processes(require_exact, make, options):
    require_exact(trains(make, **options), stops=[1, 4, 5, 9])
    require_exact(trains(make, encloses=True, **options), stops=[3, 8])
    require_exact(trains(make, looks_ahead=True, **options), stops=[2, 4])


@pytest.mark.slow
@pytest.mark.parametrize("options", some_of(WORKERS[1:], every=2))
def test_a_stop_changes_nothing_after_a_pass_was_left(require_exact, options):
    """Processes that persist have read further, which is undone."""
    require_exact(trains(StatefulStream, breaks_at=1, **options), stops=[1, 2, 3, 4])
    require_exact(trains(Share, encloses=True, breaks_at=2, **options), stops=[5, 6])


class Shuffled(Share):
    """In an order that follows from the seed of the worker process."""

    def example(self, index):
        info = get_worker_info()
        random_order = np.random.default_rng(info.seed + self.passes).permutation(self.length)
        return drawn(int(random_order[index]))


@pytest.mark.slow
@pytest.mark.parametrize("options", WORKERS[1:])
def test_the_seeds_of_worker_processes_are_those_of_an_undisturbed_run(require_exact, options):
    require_exact(trains(Shuffled, **options))


class Continuing(Share):
    """Continues only once from a state that was loaded, also at the end of a pass."""

    def __init__(self):
        super().__init__()
        self.start = 0

    def load_state_dict(self, state):
        self.start, self.passes = state["position"], int(state["passes"])

    def __iter__(self):
        self.position, self.start = self.start, 0
        while self.position < self.length:
            self.position += 1
            yield self.example(self.position - 1)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "persistent_workers": True}])
def test_a_state_of_the_end_of_a_pass_begins_the_next_one(require_exact, options):
    require_exact(trains(Continuing, **options))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker:UserWarning")
def test_a_stop_changes_nothing_when_processes_end_at_other_times(require_exact):
    """Three processes have 4, 3 and 3 examples, in batches of 3 and 1."""
    make, options = (lambda: Share(10)), {"num_workers": 3, "persistent_workers": True}
    require_exact(trains(make, **options))


@pytest.mark.slow
@pytest.mark.parametrize("options", WORKERS[1:])
def test_batches_with_a_state_are_those_of_torch(options):
    def read(loader):
        return [[each[:, 0].tolist() for each in loader] for _ in range(3)]

    expected = read(DataLoader(Share(11), batch_size=3, **options))
    assert read(new_run().loader("train", Share(11), batch_size=3, **options)) == expected


class Counting(Share):
    """Counts what all processes read."""

    def __init__(self, read):
        super().__init__(40)
        self.read = read

    def example(self, index):
        with self.read.get_lock():
            self.read.value += 1
        return super().example(index)


@pytest.mark.slow
@pytest.mark.parametrize("options", WORKERS[1:])
def test_a_resume_reads_nothing_again_in_worker_processes(follow, options):
    """But what they had read ahead of the batch that was taken."""
    counts = [multiprocessing.Value("q", 0) for _ in range(3)]
    follow(trains(lambda: Counting(counts[0]), **options))
    first = follow(trains(lambda: Counting(counts[1]), **options), at=9)
    second = follow(
        trains(lambda: Counting(counts[2]), **options), resume=first.checkpoints, number=2
    )
    whole, _, rest = (each.value for each in counts)
    assert whole == 3 * 40 and rest == whole - 9 * 3
    assert second.receipts[0].exact
    assert [each.note for each in second.receipts[0].items if each.part == "train"] == [""]


class Stately(StatefulStream):
    """Has a state that cannot be sent."""

    def __init__(self, state):
        super().__init__()
        self.state = state

    def state_dict(self):
        return self.state


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({"open": lambda: 1}, "cannot be sent by a worker process (PicklingError: Can't pickle"),
        ({"buffer": b"x" * 2**24}, "has 16777"),
    ],
)
def test_a_state_that_worker_processes_cannot_send_is_refused(follow, state, says):
    with pytest.raises(InputError) as refused:
        follow(trains(lambda: Stately(state), num_workers=1))
    message = "batch 0 of pass 0 of 'train' cannot be loaded: ValueError: the state of the dataset "
    assert message + says in str(refused.value) and "; allowed: " in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(2, 0), (0, 2), (1, 2)])
def test_another_number_of_worker_processes_is_not_exact(follow, before, after):
    first = follow(trains(Share, num_workers=before), at=2)
    second = follow(trains(Share, num_workers=after), resume=first.checkpoints, number=2)
    [inexact] = [each for each in second.receipts[0].items if not each.exact]
    assert inexact.part == "train" and inexact.note == (
        f"the checkpoint has a state of the dataset for {before} worker processes, which a loader "
        f"with {after} cannot use; batches are read again"
    )
    third = follow(trains(Share, num_workers=after), at=5, resume=first.checkpoints, number=2)
    fourth = follow(trains(Share, num_workers=after), resume=third.checkpoints, number=3)
    assert fourth.receipts[0].exact  # its own state again, from the next pass on


def test_a_checkpoint_without_a_state_of_the_dataset_is_read_again():
    """Such were written for worker processes by earlier versions."""
    read = new_run().loader("train", Share(), batch_size=3, num_workers=1).source
    batches = [each.tolist() for each in read.items(0, 0)]
    source = new_run().loader("train", Share(), batch_size=3, num_workers=1).source
    expected = fingerprint(torch.tensor(batches[1]))
    source.load_state_dict({"pass": 0, "taken": 2, "fingerprint": expected})
    assert [each.tolist() for each in source.items(0, 2)] == batches[2:]
    assert (source.note, source.problem) == ("2 batches were read again", "")
    assert [len(each) for each in source.items(1, 0)] == [3, 3, 3, 1]
    assert source.state_dict()["workers"] == 1


class Remembering(Stream):
    """Remembers the passes before, and has no state."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        return (each + self.passes for each in super().__iter__())


@pytest.mark.slow
def test_the_receipt_says_that_persistent_workers_kept_a_state(follow):
    train = trains(Remembering, **WORKERS[3])
    first = follow(train, at=5)
    second = follow(train, resume=first.checkpoints, number=2)
    [inexact] = [each for each in second.receipts[0].items if not each.exact]
    assert inexact.note == "batch 0 of pass 1 differs from that before the stop"


def test_a_dataset_with_a_state_is_not_read_again(follow):
    made = []

    def make():
        made.append(StatefulStream())
        return made[-1]

    first = follow(trains(make), at=6)
    second = follow(trains(make), resume=first.checkpoints, number=2)
    assert [each.num_read for each in made] == [16, 14]  # batches of 3, 3, 3 and 1
    assert second.receipts[0].exact
    assert [each.note for each in second.receipts[0].items if each.part == "train"] == [""]


def test_the_receipt_says_what_was_read_again(follow, caplog):
    first = follow(trains(Stream), at=6)
    second = follow(trains(Stream), resume=first.checkpoints, number=2)
    item = next(each for each in second.receipts[0].items if each.part == "train")
    assert item.exact and item.note == "2 batches were read again"
    assert "reads 2 batches again; a dataset with state_dict" in caplog.text


class Wandering(IterableDataset):
    """Yields other examples in each process."""

    def __init__(self, start):
        self.start = start

    def __iter__(self):
        return (torch.full((4,), float(self.start + each)) for each in range(10))


@pytest.mark.parametrize("encloses", [False, True])
def test_a_dataset_that_does_not_repeat_is_not_exact(follow, encloses):
    first = follow(trains(lambda: Wandering(0), encloses), at=3)
    second = follow(trains(lambda: Wandering(1), encloses), resume=first.checkpoints, number=2)
    [inexact] = [each for each in second.receipts[0].items if not each.exact]
    assert inexact.part == "train" and "differs from that before the stop" in inexact.note


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (Stream, {}),
        (Buffered, {}),
        pytest.param(Stream, WORKERS[1], marks=pytest.mark.slow),
    ],
)
def test_a_loader_without_a_state_is_refused_where_exact_is_required(follow, make, options):
    with pytest.raises(NotExact) as found:
        follow(trains(make, **options), exact="required")
    assert str(found.value) == (
        "got exact: required for a run whose resumes may not be exact; train: the loader has no "
        "state, so a resume reads its batches again; allowed: a dataset with state_dict and "
        "load_state_dict (other than those of Hugging Face)"
    )


def test_a_loader_without_a_state_is_named_at_the_first_start(follow):
    (receipt,) = follow(trains(Stream)).receipts
    assert list(receipt.uncertain) == ["train"] and receipt.exact
    assert "a resume reads its batches again" in receipt.uncertain["train"]


def test_it_is_refused_before_its_first_batch(follow):
    class Unread(Stream):
        def __iter__(self):
            raise AssertionError("an example was read")

    with pytest.raises(NotExact):
        follow(trains(Unread), exact="required")


@pytest.mark.parametrize("options", quick_some(WORKERS, every=9))
def test_a_loader_with_a_state_resumes_where_exact_is_required(follow, options):
    train = trains(StatefulStream, **options)
    first = follow(train, at=6, exact="required")
    second = follow(train, resume=first.checkpoints, number=2, exact="required")
    assert second.receipts[0].exact


def test_fewer_examples_than_were_taken_refuse_the_state(follow):
    first = follow(trains(Stream), at=3)
    shorter = trains(lambda: Stream(5))
    with pytest.raises(IncompatibleState, match="yields 2 batches in pass 0; 3 were taken"):
        follow(shorter, resume=first.checkpoints, number=2)


class Failing(IterableDataset):
    def __iter__(self):
        yield torch.ones(4)
        raise OSError("the cable is cut")


WRONG = {
    "nothing": (Stream(0), {}, "yields no batch in pass 0"),
    "an iterator that is consumed": (iter([torch.ones(4)] * 4), {}, "yields no batch in pass 1"),
    "an error": (
        Failing(),
        {},
        "batch 0 of pass 0 of 'train' cannot be loaded: OSError: the cable",
    ),
    "a loader": (DataLoader([1]), {}, "got a DataLoader for 'train'"),
    "an order": (Stream(), {"weights": [1.0] * 10}, "got weights for 'train', whose dataset is"),
    "skipping": (Stream(), {"skip_undecodable": True}, "got skip_undecodable for 'train'"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_dataset_that_cannot_be_read_is_refused(follow, wrong):
    dataset, options, says = WRONG[wrong]
    with pytest.raises(InputError) as refused:
        follow(trains(lambda: dataset, **options))
    assert says in str(refused.value)


@pytest.mark.slow
def test_an_error_in_a_worker_process_is_reported(follow):
    with pytest.raises(InputError, match="cannot be loaded: OSError: the cable is cut"):
        follow(trains(Failing, num_workers=1))


class Batched(IterableDataset):
    def __iter__(self):
        for size in (1, 3, 2):
            yield torch.stack([drawn(each) for each in range(size)])


def test_a_dataset_may_yield_batches():
    loader = new_run().loader("train", Batched(), batch_size=None)
    assert [len(each) for each in loader] == [1, 3, 2]


class Epochs(IterableDataset):
    def set_epoch(self, number):
        self.number = number

    def __iter__(self):
        return iter([torch.tensor([float(self.number)])])


@pytest.mark.parametrize("options", quick_some([{}, *WORKERS[2:]], every=9))
def test_a_dataset_receives_the_number_of_the_pass(options):
    loader = new_run().loader("train", Epochs(), **options)
    assert [sum(each.item() for each in loader) for _ in range(3)] == [
        number * max(options.get("num_workers", 0), 1) for number in range(3)
    ]


def test_a_fingerprint_tells_batches_apart():
    base = {"x": torch.zeros(2, 3), "y": [1, "a"], "z": np.zeros(2)}
    others = [
        {**base, "x": torch.zeros(3, 2)}, {**base, "x": torch.ones(2, 3)}, {**base, "y": [1, "b"]},
        {**base, "z": np.ones(2)}, {**base, "x": torch.zeros(2, 3, dtype=torch.bfloat16)},
    ]  # fmt: skip
    assert len({fingerprint(each) for each in (base, *others)}) == 6
    assert fingerprint(base) == fingerprint({**base, "x": torch.zeros(2, 3)})


def test_the_progress_of_a_loop_without_a_length_has_no_total(follow):
    done = follow(trains(Stream))
    assert done.progress[1].place == "0 of 3 epochs, train: 1 done"
    assert done.progress[2].total_steps == 3  # not known yet
    assert done.progress[6].total_steps == 12  # as long as the pass before
    assert done.progress[-1].total_steps == 12


def examples_of_the_page():
    """Return what the Python examples of docs/loaders.md that define something define."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = {"torch": torch, "IterableDataset": IterableDataset, "dataset": range(2000)}
    for block in blocks:
        if block.startswith(("class ", "def ")):
            exec(block, names)  # noqa: S102 - our own page
    return names


@pytest.mark.slow
def test_the_dataset_of_the_page_is_exact(require_exact, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{number}\n" for number in range(8)))
    lines = examples_of_the_page()["Lines"]

    def train(run, parameters):
        sums = run.keep("sums", {"value": 0.0})
        batches = run.loader("lines", lines(path), batch_size=3)
        for _ in run.epochs(2):
            for batch in batches:
                sums["value"] = 2 * sums["value"] + sum(map(float, batch))
                yield {"sum": sums["value"]}

    assert require_exact(train).progress[-1].step == 6


def test_the_sampler_of_the_page_gives_the_order():
    sampler = examples_of_the_page()["sampler"]
    loader = new_run().loader("train", range(2000), batch_size=1000, sampler=sampler)
    seed = seed_of("3/train")
    for number in range(2):
        order = torch.randperm(2000, generator=torch.Generator().manual_seed(seed + number))
        assert [each.tolist() for each in loader] == [order[:1000].tolist()]
