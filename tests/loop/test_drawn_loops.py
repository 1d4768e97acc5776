"""Drawn programs of nested loops: a stop, a death and a resume anywhere change nothing."""

import random
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engines.contract import Case, require_drawn, require_stop_changes_nothing, undisturbed
from tests.loop.program_loop import NUM_ITEMS, ORDERS, SCHEDULES
from tests.thinning import quick_some, some_of

DATA = [*ORDERS, "stream", "stateful", *SCHEDULES]


@st.composite
def bodies(draw, depth=0, names=None):
    names = count() if names is None else names
    steps = st.sampled_from(["work", "yield"])
    body = draw(st.lists(steps, max_size=2)) if depth else []
    for _ in range(draw(st.integers(1 if not depth else 0, 2 if depth < 2 else 0))):
        body.append(
            {
                "name": f"loop{next(names)}",
                "length": draw(st.integers(0, 3)),
                "workers": draw(st.sampled_from([None, None, None, 0, 0])),
                "data": draw(st.sampled_from(DATA)),
                "breaks_at": draw(st.sampled_from([None, None, None, 1])),
                "body": draw(bodies(depth + 1, names)),
            }
        )
        if depth:
            body += draw(st.lists(steps, max_size=2))
    return body


def yields(body):
    """Return how often the program yields."""
    total = 0
    for each in body:
        if isinstance(each, dict):
            times = NUM_ITEMS.get(each.get("data"), 3)
            if each.get("data") == "stateful":  # each worker process yields all of it
                times *= max(1, each["workers"] or 0)
            if each["workers"] is None:
                ends = (each["length"], each.get("breaks_at"))
                times = min(end for end in ends if end is not None)
            total += times * yields(each["body"])
        else:
            total += each == "yield"
    return total


def case(body):
    config = {"recipe": "program", "parameters": {"body": body}, "log_every_steps": 2}
    return Case("loop", "program", config | {"monitor": "calls", "mode": "max"}, ())


def try_program(body, root, rng):
    found = case(body)
    expected = undisturbed(found, root)
    assert expected.progress[-1].step == yields(body)
    steps = sorted({each.step for each in expected.progress})[:-1]
    for at in rng.sample(steps, min(4, len(steps))):
        require_stop_changes_nothing(found, root / f"at{at}", expected, [at])
    if len(steps) > 2:
        require_drawn(found, root / "drawn", rng)


@pytest.mark.slow
@pytest.mark.parametrize("seed", quick_some(range(3), every=3))
def test_a_program_continues_anywhere(tmp_path, seed):
    inner = {"name": "batches", "length": 0, "workers": 0, "body": ["work", "yield"]}
    twice = {"name": "again", "length": 2, "workers": None, "body": ["work", "yield", "work"]}
    left = {"name": "left", "length": 3, "workers": None, "breaks_at": 1, "body": ["yield"]}
    body = [
        {"name": "warmup", "length": 2, "workers": None, "body": ["work", "yield"]},
        {
            "name": "epoch", "length": 3, "workers": None,
            "body": ["work", inner, "work", twice, left, "work", "yield", "yield"],
        },
    ]  # fmt: skip
    try_program(body, tmp_path, random.Random(seed))


@pytest.mark.slow
@pytest.mark.parametrize("data", quick_some(DATA, every=12))
def test_a_program_continues_in_any_loader(tmp_path, data):
    try_loader(data, 0, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("data", some_of(DATA, every=14))
def test_a_program_continues_in_any_loader_with_worker_processes(tmp_path, data):
    try_loader(data, 2, tmp_path)


def try_loader(data, workers, tmp_path):
    inner = {"name": "within", "length": 2, "workers": None, "body": ["work", "yield"]}
    loader = {"name": "batches", "workers": workers, "data": data, "body": ["work", "yield", inner]}
    body = [{"name": "epoch", "length": 3, "workers": None, "body": [loader, "yield"]}]
    try_program(body, tmp_path, random.Random(data))


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=bodies().filter(lambda each: 2 < yields(each) < 80), seed=st.integers(0, 2**32))
def test_drawn_programs_go_on_anywhere(tmp_path_factory, body, seed):
    try_program(body, tmp_path_factory.mktemp("program"), random.Random(seed))
