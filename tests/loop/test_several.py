"""Several loaders in one loop: the schedules beside lists written by hand, and every stop."""

from collections import Counter
from itertools import product

import pytest
import torch
from torch import nn

from tests.loop.datasets import Augmented, StatefulStream, Stream
from tests.thinning import some_of
from trainops.kinds.loop.course import Course
from trainops.kinds.loop.run import Run
from trainops.kinds.loop.schedules import LoaderSchedule
from trainops.kinds.loop.seeding import generator_of
from trainops.runtime.errors import IncompatibleState, InputError

THREE_AND_TWO = {"a": 3, "b": 2}


def names(kind, length, short="cycle", lengths=THREE_AND_TWO, seed="s", **more):
    schedule = LoaderSchedule("loaders", kind, length, short, lengths, **more)
    found = "".join(schedule.names(seed))
    assert schedule.num_items(seed) == len(found)
    return found


BY_HAND = {
    ("sequential", "sum", "cycle"): "aaabb",
    ("sequential", "max", "cycle"): "aaabb",
    ("sequential", "min", "cycle"): "aaa",
    ("sequential", 12, "cycle"): "aaabbaaabbaa",
    ("sequential", 4, "stop"): "aaab",
    ("round_robin", "sum", "cycle"): "ababa",
    ("round_robin", "sum", "stop"): "ababa",
    ("round_robin", "max", "cycle"): "ababa",
    ("round_robin", "min", "cycle"): "abab",
    ("round_robin", 7, "cycle"): "abababa",
    ("round_robin", 5, "stop"): "ababa",
    ("alternating", "sum", "cycle"): "abbab",
    ("alternating", "sum", "stop"): "abbaa",
    ("alternating", "max", "cycle"): "abbabba",
    ("alternating", "max", "stop"): "abbaa",
    ("alternating", "min", "cycle"): "abb",
    ("alternating", 8, "cycle"): "abbabbab",
}


@pytest.mark.parametrize("case", BY_HAND)
def test_a_schedule_is_that_written_by_hand(case):
    more = {"pattern": ("a", "b", "b")} if case[0] == "alternating" else {}
    assert names(*case, **more) == BY_HAND[case]


def test_a_weighted_schedule_draws_by_share():
    drawn = torch.rand(3000, dtype=torch.float64, generator=generator_of("s/schedule"))
    expected = "".join("a" if each < 0.75 else "b" for each in drawn.tolist())
    weights = {"a": 3.0, "b": 1.0}
    assert names("weighted", 1024, weights=weights) == expected[:1024]
    assert Counter(names("weighted", 3000, weights=weights))["a"] == pytest.approx(2250, abs=100)
    assert names("weighted", 50) != names("weighted", 50, seed="t")


@pytest.mark.parametrize("seed", "stuvw")
def test_a_weighted_schedule_ends_by_its_length(seed):
    lengths = {"a": 5, "b": 9, "c": 2}
    weights = {"a": 1.0, "b": 5.0, "c": 0.1}
    stopped = names("weighted", "sum", "stop", lengths, seed, weights=weights)
    assert Counter(stopped) == lengths
    longest = names("weighted", "max", "cycle", lengths, seed, weights=weights)
    counts = Counter(longest)
    assert all(counts[name] >= lengths[name] for name in lengths)
    assert any(counts[name] == lengths[name] for name in longest[-1])
    shortest = Counter(names("weighted", "min", "cycle", lengths, seed, weights=weights))
    assert sum(shortest[name] >= lengths[name] for name in lengths) == 1


WRONG = {
    "a schedule": ({"kind": "random"}, "got schedule 'random'"),
    "a short one": ({"short": "repeat"}, "got short 'repeat'"),
    "a length": ({"length": "longest"}, "got length 'longest'"),
    "a length of 0": ({"length": 0}, "got length 0"),
    "a fraction": ({"length": 2.5}, "got length 2.5"),
    "a long length that stops": ({"length": 6, "short": "stop"}, "got length 6 and short 'stop'"),
    "no loader": ({"lengths": {}}, "got no loader"),
    "no pattern": ({"kind": "alternating"}, "and pattern []"),
    "an incomplete pattern": ({"kind": "alternating", "pattern": ("a",)}, "pattern ['a']"),
    "a pattern of none": ({"kind": "alternating", "pattern": ("a", "b", "c")}, "names each loader"),
    "a needless pattern": ({"pattern": ("a", "b")}, "got schedule round_robin and pattern"),
    "needless weights": ({"weights": {"a": 1.0, "b": 1.0}}, "round_robin and weights"),
    "a weight of 0": ({"kind": "weighted", "weights": {"a": 1.0, "b": 0.0}}, "above 0"),
    "a missing weight": ({"kind": "weighted", "weights": {"a": 1.0}}, "for each loader"),
    "an unknown sum": ({"lengths": {"a": None, "b": 2}}, "got length 'sum'"),
    "an unknown end": (
        {"lengths": {"a": None, "b": 2}, "length": 4, "kind": "sequential"}, "without a length",
    ),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_a_schedule_that_cannot_be_is_refused(wrong):
    changes, says = WRONG[wrong]
    given = {"kind": "round_robin", "length": "sum", "short": "cycle", "lengths": THREE_AND_TWO}
    with pytest.raises(InputError) as refused:
        LoaderSchedule("loaders", **given | changes)
    assert says in str(refused.value)


def new_run():
    return Run(Course(lambda: None), seed=3, device=torch.device("cpu"), inputs={})


def test_each_loader_has_passes_of_its_own():
    alone = new_run()
    data = {"a": Augmented(3), "b": Augmented(2)}
    sources = {key: alone.loader(key, dataset).source for key, dataset in data.items()}
    expected = {
        key: [each.tolist() for number in range(6) for each in source.items(number, 0)]
        for key, source in sources.items()
    }
    run = new_run()
    loaders = {key: run.loader(key, dataset) for key, dataset in data.items()}
    several = run.loaders(loaders, length="max", schedule="alternating", pattern="abb")
    found = [[(key, batch.tolist()) for key, batch in several] for _ in range(2)]
    assert ["".join(key for key, _ in each) for each in found] == ["abbabba"] * 2
    for key, begins in (("a", [0, 3]), ("b", [0, 4])):  # b: two passes in each of both
        for batches, begin in zip(found, begins, strict=True):
            own = [batch for name, batch in batches if name == key]
            assert own == expected[key][begin : begin + len(own)]


def test_loaders_continue_where_the_length_is_a_number():
    run = new_run()
    loaders = {key: run.loader(key, Augmented(5), shuffle=False) for key in "ab"}
    several = run.loaders(loaders, length=4)
    found = [[(key, int(batch[0, 0])) for key, batch in several] for _ in range(3)]
    assert [index for each in found for key, index in each if key == "a"] == [0, 1, 2, 3, 4, 0]
    assert len(several) == 4


MEMBERS = {
    "maps": {"a": lambda: Augmented(5), "b": lambda: Augmented(3)},
    "streams": {
        "a": lambda: Augmented(5),
        "b": lambda: Stream(4),
        "c": lambda: StatefulStream(5),
    },
}
OPTIONS = [
    {"schedule": "round_robin", "length": "max"},
    {"schedule": "round_robin", "length": "sum", "short": "stop"},
    {"schedule": "sequential", "length": "sum"},
    {"schedule": "alternating", "length": "min", "pattern": "aab"},
    {"schedule": "weighted", "length": "max", "weights": {"a": 1.0, "b": 3.0}},
    {"schedule": "weighted", "length": 7},
]
CASES = [
    *(("maps", each, encloses) for each in OPTIONS for encloses in (False, True)),
    ("streams", {"length": 8}, False),
    ("streams", {"length": 8}, True),
    ("streams", {"length": 6, "schedule": "weighted"}, False),
    ("streams", {"length": 7, "schedule": "alternating", "pattern": "abcb"}, True),
]


def trains(members, options, encloses, **more):
    def train(run, parameters):
        model = run.keep("model", nn.Linear(4, 1))
        optimizer = run.keep("optimizer", torch.optim.Adam(model.parameters()))
        loaders = {
            key: run.loader(f"data_{key}", make(), batch_size=2, **more)
            for key, make in MEMBERS[members].items()
        }
        several, within = run.loaders(loaders, **options), run.steps("within", 2)
        for _ in run.epochs(3):
            for key, batch in several:
                loss = model(batch).square().mean() + torch.rand(())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if not encloses:
                    yield {f"loss_{key}": loss}
                for _ in within if encloses else ():
                    yield {f"loss_{key}": batch.sum()}

    return train


@pytest.mark.slow
@pytest.mark.parametrize(("members", "options", "encloses"), some_of(CASES, every=2))
def test_a_stop_at_any_step_changes_nothing(require_exact, members, options, encloses):
    require_exact(trains(members, options, encloses))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "persistent"), some_of([*product([4, 12, 14], [False, True])], every=5)
)
def test_a_stop_changes_nothing_with_worker_processes(require_exact, number, persistent):
    train = trains(*CASES[number], num_workers=2, persistent_workers=persistent)
    require_exact(train, stops=[1, 5, 9])


def test_the_receipt_says_what_was_read_again(follow):
    train = trains("streams", {"length": 8}, encloses=False)
    first = follow(train, at=5)
    second = follow(train, resume=first.checkpoints, number=2)
    notes = {each.part: each.note for each in second.receipts[0].items}
    assert notes["data_b"] == "2 batches were read again" and notes["data_c"] == ""
    assert second.receipts[0].exact


CHANGES = {
    "schedule": {"schedule": "weighted"},
    "length": {"length": "sum"},
    "short ones": {"short": "stop"},
    "number": {"length": 4},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_schedule_or_length_refuses_the_state(follow, change):
    before = {"schedule": "round_robin", "length": "max"}
    first = follow(trains("maps", before, encloses=False), at=3)
    changed = trains("maps", before | CHANGES[change], encloses=False)
    with pytest.raises(IncompatibleState) as refused:
        follow(changed, resume=first.checkpoints, number=2)
    text = str(refused.value)
    assert "had the schedule round_robin, length max, short cycle: a of 3, b of 2; now" in text
    assert str(next(iter(CHANGES[change].values()))) in text.partition("; now it is ")[2]


def test_a_loader_is_in_one_place():
    run = new_run()
    loader = run.loader("data", Augmented())
    with pytest.raises(InputError, match="got 'a': a Passes for 'loaders'"):
        run.loaders({"a": loader, "b": loader})
    run.loaders({"a": loader})
    with pytest.raises(ValueError, match="'data' is part of the loaders 'loaders'"):
        next(iter(loader))
    with pytest.raises(InputError, match="got 'a': a Passes for 'again'; allowed: loops of"):
        run.loaders({"a": loader}, name="again")
    with pytest.raises(InputError, match="got 's': a Passes"):
        run.loaders({"s": run.steps("steps", 3)}, name="third")
