"""Loaders of map-style datasets: worker processes, random numbers, examples that do not load."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from itertools import product

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate, get_worker_info

from tests.loop.datasets import Augmented, drawn
from tests.thinning import quick_some, some_of
from trainops.datasets.errors import DirectoryAway, DirectoryChanged
from trainops.kinds.loop import examples
from trainops.kinds.loop.course import Course
from trainops.kinds.loop.run import Run
from trainops.kinds.loop.seeding import generator_of, start_streams
from trainops.learning.readers import ImageFolder
from trainops.process.reason_codes import reason_code
from trainops.runtime.errors import InputError, LoaderLost

WORKERS = [
    {},
    {"num_workers": 1},
    {"num_workers": 2, "prefetch_factor": 3, "timeout": 60},
    {"num_workers": 2, "persistent_workers": True, "pin_memory": True},
]


def new_run():
    return Run(Course(lambda: None), seed=3, device=torch.device("cpu"), inputs={})


def mixed(examples):
    """Draw in collate_fn, as collators that mask or mix do."""
    return torch.stack(examples) * torch.rand(()) + random.random() * np.random.random()


def passes(num_passes=2, dataset=None, **options):
    loader = new_run().loader("train", dataset or Augmented(), batch_size=4, **options)
    return [[each.tolist() for each in loader] for _ in range(num_passes)]


def by_hand(orders, *, repeats=False, collate=torch.stack):
    found = []
    for number, batches in enumerate(orders):
        of_pass = []
        for at, batch in enumerate(batches):
            examples = []
            for place, index in enumerate(batch):
                where = f" at {at}.{place}" if repeats else ""
                start_streams(f"3/train/pass {number}/example {int(index)}{where}")
                examples.append(drawn(int(index)))
            start_streams(f"3/train/pass {number}/batch {at}/collate")
            of_pass.append(collate(examples).tolist())
        found.append(of_pass)
    return found


def permutations(num_passes=2):
    for number in range(num_passes):
        generator = generator_of(f"3/train/pass {number}/order")
        yield torch.randperm(10, generator=generator).split(4)


@pytest.mark.slow
@pytest.mark.parametrize("options", quick_some(WORKERS, every=2))
def test_an_example_draws_by_seed_pass_and_index(options):
    assert passes(**options) == by_hand(permutations())
    own = passes(collate_fn=mixed, **options)
    assert own == by_hand(permutations(), collate=mixed)


@pytest.mark.parametrize("options", quick_some(WORKERS, every=3))
def test_an_example_that_is_drawn_twice_has_random_numbers_of_its_own(options):
    twice = [[[1, 1, 2, 1]], [[1, 1, 2, 1]]]
    found = passes(sampler=lambda *_: [1, 1, 2, 1], **options)
    assert found == by_hand(twice, repeats=True)
    assert len({tuple(each) for batches in found for each in batches[0]}) == 8


def test_the_batch_size_changes_no_example():
    run = new_run()
    whole = [run.loader("train", Augmented(), batch_size=10).source.items(0, 0)]
    [[expected]] = [[each.tolist() for each in items] for items in whole]
    assert [example for batch in passes(1)[0] for example in batch] == expected


class Together(Augmented):
    def __getitems__(self, indices):
        return [drawn(index) for index in indices]


@pytest.mark.slow
def test_a_dataset_that_loads_batches_draws_by_the_number_of_the_batch():
    expected = passes(dataset=Together())
    assert passes(dataset=Together(), num_workers=2) == expected
    [order, _] = [[each.tolist() for each in batches] for batches in permutations()]
    start_streams("3/train/pass 0/batch 1")
    assert expected[0][1] == [drawn(index).tolist() for index in order[1]]


def test_a_dataset_that_draws_nothing_can_do_without_seeds():
    states = []

    class Watching(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            states.append(torch.initial_seed())
            return index

    torch.manual_seed(5)
    list(new_run().loader("train", Watching(), is_random=False))
    list(new_run().loader("train", (Watching()[each] for each in range(4)), is_random=False))
    assert states == [5] * 8
    list(new_run().loader("train", Watching()))
    assert len(set(states[8:])) == 4 and torch.initial_seed() == 5


WRONG = {
    "prefetching": ({"prefetch_factor": 2}, "got num_workers 0 and prefetch_factor"),
    "persisting": ({"persistent_workers": True}, "num_workers 0 and persistent_workers"),
    "waiting": ({"timeout": 3}, "got num_workers 0 and timeout for 'train'; allowed: with"),
    "no prefetching": ({"num_workers": 1, "prefetch_factor": 0}, "prefetch_factor=0"),
    "a negative number": ({"num_workers": -1}, "num_workers=-1"),
    "no batch size": ({"batch_size": None}, "got batch_size None"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_workers_that_cannot_be_are_refused(wrong):
    options, says = WRONG[wrong]
    with pytest.raises(InputError) as refused:
        new_run().loader("train", Augmented(), **options)
    assert says in str(refused.value)


class Scaled(Dataset):
    scale = 1.0

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.scale * index


class Pairs(Dataset):
    """What a function makes of each example of another dataset."""

    def __init__(self, dataset, function):
        self.dataset, self.function = dataset, function

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        return self.function(self.dataset[index])


def open_scale(number):
    get_worker_info().dataset.scale = 10.0


@pytest.mark.slow
def test_worker_processes_begin_with_a_function():
    options = {"batch_size": 2, "shuffle": False, "worker_init_fn": open_scale}
    batches = [each.tolist() for each in new_run().loader("train", Scaled(), **options)]
    assert batches == [[0.0, 1.0], [2.0, 3.0]]
    batches = [
        each.tolist() for each in new_run().loader("train", Scaled(), num_workers=1, **options)
    ]
    assert batches == [[0.0, 10.0], [20.0, 30.0]]


@pytest.mark.slow
def test_lambdas_work_in_worker_processes_that_are_forked(tmp_path):
    """As a transform, a collate_fn, a worker_init_fn and a class within a function."""
    (tmp_path / "class").mkdir()
    for number in range(6):
        Image.new("RGB", (4, 4), (number, 0, 9)).save(tmp_path / "class" / f"{number}.png")

    class Shifted(Augmented):
        def __getitem__(self, index):
            return (lambda example: example + 1)(super().__getitem__(index))

    def loaded(dataset, **options):
        batches = new_run().loader(
            "train", dataset, batch_size=2,
            collate_fn=lambda examples: [each * torch.rand(()) for each in examples], **options,
        )  # fmt: skip
        return [torch.stack(each).tolist() for number in range(2) for each in batches]

    images = ImageFolder(tmp_path, transform=lambda image: image / 255)
    for dataset in (Shifted(), Pairs(images, lambda pair: pair[0])):
        forked = loaded(dataset, num_workers=2, worker_init_fn=lambda number: None)
        assert forked == loaded(dataset) and forked[0] != forked[1]


@pytest.mark.slow
def test_lambdas_are_refused_where_worker_processes_are_not_forked(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import multiprocessing, torch
        from trainops.kinds.loop.course import Course
        from trainops.kinds.loop.run import Run
        from trainops.runtime.errors import InputError
        from tests.loop.datasets import Augmented

        multiprocessing.set_start_method("spawn")
        run = Run(Course(lambda: None), seed=3, device=torch.device("cpu"), inputs={})
        try:
            run.loader("train", Augmented(), num_workers=1, collate_fn=lambda each: each)
        except InputError as error:
            print(error)
        """)
    )
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": "."},
    )
    assert "'train' sends a function to worker processes (spawn)" in done.stdout
    assert "allowed: what can be pickled: functions and classes of a module, no lambdas" in (
        done.stdout
    )


class Damaged(Dataset):
    """Examples 3 and 5 cannot be decoded."""

    def __init__(self, error=ValueError):
        self.samples = [(f"images/{index}.png", 0) for index in range(8)]
        self.error = error

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index in (3, 5):
            raise self.error("no PNG signature")
        return torch.tensor([float(index)])


class Nameless(Damaged):
    def __init__(self):
        self.error = KeyError


class Missing(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return open("nowhere.png")  # noqa: PTH123


NAMED = {
    "a list of files": (Damaged(), "example 3 of 'train' (images/3.png) cannot be loaded: ValueE"),
    "a subset": (Subset(Damaged(), [5]), "example 0 of 'train' (images/5.png) cannot be loaded"),
    "an error of a file": (Missing(), "example 0 of 'train' (nowhere.png) cannot be loaded: File"),
    "no file": (Nameless(), "example 3 of 'train' cannot be loaded: KeyError"),
}


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("named", NAMED)
def test_an_example_that_cannot_be_loaded_is_named(named, num_workers):
    dataset, says = NAMED[named]
    loader = new_run().loader(
        "train", dataset, batch_size=2, shuffle=False, num_workers=num_workers
    )
    with pytest.raises(InputError) as refused:
        list(loader)
    assert says in str(refused.value)
    assert "Traceback" in str(refused.value.__cause__)


def uneven(examples):
    raise ValueError("they differ in size")


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_batch_that_cannot_be_collated_is_named(num_workers):
    loader = new_run().loader("train", Augmented(), collate_fn=uneven, num_workers=num_workers)
    says = "batch 0 of pass 0 of 'train' cannot be loaded: ValueError: they differ in size"
    with pytest.raises(InputError, match=says):
        list(loader)


class Dying(Augmented):
    """Its worker process ends with an exit code (positive) or by a signal (negative)."""

    def __init__(self, status, index):
        super().__init__()
        self.status, self.index = status, index

    def __getitem__(self, index):
        if index == self.index and self.status < 0:
            os.kill(os.getpid(), -self.status)
        elif index == self.index:
            os._exit(self.status)
        return super().__getitem__(index)


# torch may find the ended process once more, while its loader is deleted.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 5])  # later, the connection may be what breaks
@pytest.mark.parametrize(
    ("status", "codes"),
    [
        (3, ["PROCESS_EXITED", "PROCESS_KILLED"]),
        (-signal.SIGKILL, ["PROCESS_KILLED"]),
        (-signal.SIGSEGV, ["SEGMENTATION_FAULT", "PROCESS_KILLED"]),
    ],
)
def test_a_worker_process_that_ends_has_the_attempt_end_as_its_own_process_would(
    status, codes, index
):
    loader = new_run().loader("train", Dying(status, index), num_workers=1, shuffle=False)
    with pytest.raises(LoaderLost, match=r"of pass 0 of 'train' .* has ended: .*num_workers") as it:
        list(loader)
    assert reason_code(it.value) in codes


class Sleeping(Augmented):
    def __getitem__(self, index):
        time.sleep(60)


@pytest.mark.slow
def test_a_worker_process_that_hangs_is_reported():
    loader = new_run().loader("train", Sleeping(), num_workers=1, timeout=0.1)
    with pytest.raises(InputError, match=r"batch 0 of pass 0 of 'train' .*timed out after 0\.1"):
        list(loader)


def breaks_off(examples):
    raise EOFError("the file breaks off")


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 1])
def test_such_an_error_of_a_batch_is_none_of_the_worker_process(num_workers):
    loader = new_run().loader("train", Augmented(), num_workers=num_workers, collate_fn=breaks_off)
    with pytest.raises(InputError, match="EOFError: the file breaks off"):
        list(loader)


def test_running_out_of_memory_stays_what_it_is():
    with pytest.raises(MemoryError):
        list(new_run().loader("train", Damaged(MemoryError)))


@pytest.mark.parametrize("error", [DirectoryAway, DirectoryChanged])
@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_data_that_is_gone_is_no_undecodable_example(error, num_workers):
    """It ends the attempt by a reason of its own, which has it resumed elsewhere or later."""
    loader = new_run().loader(
        "train", Damaged(error), skip_undecodable=True, num_workers=num_workers
    )
    with pytest.raises(error) as raised:
        list(loader)
    assert str(raised.value) == str(error("no PNG signature"))


def trains(**options):
    def train(run, parameters):
        model = run.keep("model", nn.Linear(1, 1))
        optimizer = run.keep("optimizer", torch.optim.Adam(model.parameters()))
        batches = run.loader(
            "train", Damaged(), batch_size=3, shuffle=False, skip_undecodable=True, **options
        )
        for _ in run.epochs(3):
            for batch in batches:
                loss = model(batch).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                yield {"train_loss": loss}

    return train


@pytest.mark.parametrize("options", quick_some(WORKERS[:3:2], every=2))
def test_examples_are_skipped_where_asked_and_counted(require_exact, options, caplog):
    expected = require_exact(trains(**options), stops=[1, 2, 4])
    counts = {step: each["train_undecodable"] for step, each in expected.curve.items()
              if "train_undecodable" in each}  # fmt: skip
    assert counts == {2: 2, 5: 4, 8: 6}  # both in the second batch of three
    assert "skipped: example 3 of 'train' (images/3.png) cannot be loaded" in caplog.text


def test_a_batch_without_any_example_is_an_error():
    loader = new_run().loader("train", Damaged(), shuffle=False, skip_undecodable=True)
    with pytest.raises(InputError, match="example 3 of 'train'"):
        list(loader)


ORDERS = {
    "weighted": {"weights": [1.0, 2.0] * 5, "num_samples": 14, "batch_size": 4},
    "by length": {"lengths": list(range(10)), "batch_size": 4},
    "own": {"batch_sampler": lambda _, number: [[number, each, each] for each in range(3)]},
}


@pytest.mark.slow
@pytest.mark.parametrize(("order", "options"), some_of([*product(ORDERS, WORKERS)], every=4))
def test_a_stop_changes_nothing_with_any_order_and_worker_processes(require_exact, order, options):
    def train(run, parameters):
        model = run.keep("model", nn.Linear(4, 1))
        optimizer = run.keep("optimizer", torch.optim.Adam(model.parameters()))
        chosen = ORDERS[order] | options
        batches = run.loader("train", Augmented(), collate_fn=mixed, **chosen)
        for _ in run.epochs(2):
            for batch in batches:
                loss = model(batch.float()).square().mean() + torch.rand(())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                yield {"train_loss": loss}

    require_exact(train, stops=[1, 4])


def test_a_loader_has_its_dataset_and_length_as_that_of_torch():
    dataset = TensorDataset(torch.arange(4))
    loader = new_run().loader("train", dataset, batch_size=3)
    assert loader.dataset is dataset and len(loader) == 2


def test_tensors_in_memory_need_no_seeds(monkeypatch):
    started = []
    monkeypatch.setattr(examples, "start_streams", started.append)
    tensors = TensorDataset(torch.arange(4))
    for dataset in (tensors, Subset(Subset(tensors, range(4)), range(4))):
        loader = new_run().loader("train", dataset, shuffle=False, batch_size=3)
        assert [each[0].tolist() for each in loader] == [[0, 1, 2], [3]]
    assert not started


LAYOUTS = {
    "contiguous": lambda tensor: tensor,
    "every other row": lambda tensor: tensor.repeat_interleave(2, 0)[::2],
    "transposed": lambda tensor: tensor.transpose(0, -1).contiguous().transpose(0, -1),
    "trainable": lambda tensor: tensor.requires_grad_() if tensor.is_floating_point() else tensor,
    "expanded": lambda tensor: tensor[:1].expand(tensor.shape),
}
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


@pytest.mark.parametrize("seed", range(40))
def test_batches_of_tensors_are_what_collating_the_examples_one_by_one_gives(seed):
    drawing = random.Random(seed)
    length = drawing.randint(2, 9)
    tensors = [
        drawing.choice(list(LAYOUTS.values()))(
            torch.randint(0, 9, (length, *drawing.choice([(), (3,), (2, 3), (2, 1, 3)]))).to(dtype)
        )
        for dtype in drawing.choices(DTYPES, k=drawing.randint(1, 3))
    ]
    whole = TensorDataset(*tensors)
    for _ in range(drawing.randint(0, 2)):
        whole = Subset(whole, drawing.choices(range(len(whole)), k=len(whole)))
    size, collate = drawing.randint(1, length), drawing.choice([None, default_collate, list])
    given = list(
        new_run().loader("train", whole, shuffle=False, batch_size=size, collate_fn=collate)
    )

    plain = [
        (collate or default_collate)([whole[i] for i in range(at, min(at + size, length))])
        for at in range(0, length, size)
    ]
    assert [structure(each) for each in given] == [structure(each) for each in plain]


def structure(batch):
    if isinstance(batch, torch.Tensor):
        return str(batch.dtype), batch.stride(), batch.tolist()
    return type(batch), [structure(each) for each in batch]


def test_an_example_that_a_subset_does_not_have_is_named():
    dataset = Subset(TensorDataset(torch.arange(4)), [0, 9, 2])
    with pytest.raises(InputError, match="example 1 of 'train' cannot be loaded: IndexError"):
        list(new_run().loader("train", dataset, shuffle=False, batch_size=3))


def test_tensors_that_a_subclass_or_a_collate_fn_may_augment_have_seeds(monkeypatch):
    class Noisy(TensorDataset):
        def __getitem__(self, index):
            return super().__getitem__(index)[0] + torch.rand(())

    started = []
    monkeypatch.setattr(examples, "start_streams", started.append)
    tensors = TensorDataset(torch.arange(4))
    list(new_run().loader("train", Noisy(torch.arange(4)), batch_size=4))
    assert len(started) == 4
    list(new_run().loader("train", tensors, batch_size=4, collate_fn=lambda each: each))
    assert started[4:] == ["3/train/pass 0/batch 0/collate"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_are_pinned_where_there_is_a_gpu(num_workers):
    loader = new_run().loader("train", Augmented(), pin_memory=True, num_workers=num_workers)
    assert all(each.is_pinned() for each in loader)
