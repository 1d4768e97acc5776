"""Learning rates by formula: at every step, counted from 0, of a whole training."""

import math
from itertools import product

import pytest

from tests.thinning import quick_some
from tests.training_oracle.comparing import make_job, parse, rate_of

RATE = 0.2
ROUNDING = 1e-12  # torch's cosine goes from one rate to the next, not by the formula
CONFIG = {"recipe": "drawn", "learning_rate": RATE, "epochs": 5, "batch_size": 4}
PER_EPOCH = {1: 6, 4: 2}  # steps, by accumulation: 23 examples are 6 batches


def rates(**changes):
    """Return the rate that each step is made with, and the one after the last."""
    job = make_job(parse({**CONFIG, **changes}), {})
    found = [rate_of(job)]
    while job.step < job.total_steps:
        job.advance()
        found.append(rate_of(job))
    return found


def close(expected):
    return pytest.approx(expected, rel=ROUNDING, abs=RATE * ROUNDING)


@pytest.mark.parametrize("accumulation", [1, 4])
def test_none_stays(accumulation):
    found = rates(gradient_accumulation=accumulation)
    assert found == [RATE] * (5 * PER_EPOCH[accumulation] + 1)


@pytest.mark.parametrize("accumulation", [1, 4])
def test_cosine_goes_down_to_nothing_over_all_steps(accumulation):
    total = 5 * PER_EPOCH[accumulation]
    found = rates(scheduler="cosine", gradient_accumulation=accumulation)
    assert found == close(
        [RATE * (1 + math.cos(math.pi * step / total)) / 2 for step in range(total + 1)]
    )
    assert found[0] == RATE and abs(found[-1]) < 1e-15


@pytest.mark.parametrize(
    ("accumulation", "drop_epochs"), quick_some([*product([1, 4], [1, 2, 3, 9])], every=3)
)
def test_step_drops_after_every_n_epochs(accumulation, drop_epochs):
    per_epoch = PER_EPOCH[accumulation]
    found = rates(
        scheduler="step", scheduler_step_epochs=drop_epochs, scheduler_factor=0.3,
        gradient_accumulation=accumulation,
    )  # fmt: skip
    assert found == close(
        [RATE * 0.3 ** (step // per_epoch // drop_epochs) for step in range(5 * per_epoch + 1)]
    )


@pytest.mark.parametrize(
    ("accumulation", "warmup"), quick_some([*product([1, 4], [0.0, 0.1, 0.5, 0.99])], every=3)
)
def test_warmup_cosine_rises_in_a_line_and_falls_to_nothing(warmup, accumulation):
    total = 5 * PER_EPOCH[accumulation]
    rising = math.ceil(warmup * total)
    up = [RATE * step / (rising + 1) for step in range(1, rising + 1)]
    falling = total - rising
    down = [RATE * (1 + math.cos(math.pi * step / max(1, falling))) / 2 for step in range(falling)]
    found = rates(
        scheduler="warmup_cosine", warmup_fraction=warmup, gradient_accumulation=accumulation
    )
    assert found[:-1] == close(up + down)
    if falling:
        assert abs(found[-1]) < 1e-15 and max(found) == close(RATE)


@pytest.mark.parametrize(
    ("accumulation", "warmup"), quick_some([*product([1, 4], [0.0, 0.1, 0.5, 0.9])], every=3)
)
def test_onecycle_rises_to_the_rate_and_falls_to_a_ten_thousandth_of_its_start(
    warmup, accumulation
):
    """From a 25th, along half a cosine each way: torch's OneCycleLR, over one rate more than steps.

    So the last step is not made with the smallest rate; the rate after it is the smallest.
    """
    total = 5 * PER_EPOCH[accumulation]
    peak = max(warmup, 1 / total) * (total + 1) - 1  # torch's first phase ends here
    start, end = RATE / 25, RATE / 25 / 1e4

    def rate(step):
        if step <= peak:
            return between(start, RATE, step / peak)
        return between(RATE, end, (step - peak) / (total - peak))

    found = rates(scheduler="onecycle", warmup_fraction=warmup, gradient_accumulation=accumulation)
    assert found == close([rate(step) for step in range(total + 1)])
    assert found[-1] == close(end)


def between(first, last, share):
    return last + (first - last) / 2 * (1 + math.cos(math.pi * share))


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_onecycle_moves_the_momentum_against_the_rate(optimizer):
    job = make_job(parse({**CONFIG, "scheduler": "onecycle", "optimizer": optimizer,
                          "warmup_fraction": 0.5}), {})  # fmt: skip
    found = []
    while job.step < job.total_steps:
        (group,) = job.state_dict()["optimizer"][0]["param_groups"]
        found.append(group["momentum"] if optimizer == "sgd" else group["betas"][0])
        job.advance()
    assert found[0] == 0.95 and min(found) == pytest.approx(0.85, abs=0.002)
    turn = found.index(min(found))
    assert found[: turn + 1] == sorted(found[: turn + 1], reverse=True)
    assert found[turn:] == sorted(found[turn:])


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheduler", quick_some(["none", "cosine", "step", "onecycle", "warmup_cosine"], every=3)
)
def test_a_resume_continues_with_the_rates(scheduler):
    """From the state after any step: the rates of a training that was not interrupted."""
    config = parse({**CONFIG, "epochs": 2, "scheduler": scheduler, "scheduler_step_epochs": 1})
    whole = rates(epochs=2, scheduler=scheduler, scheduler_step_epochs=1)
    first = make_job(config, {})
    for at in range(1, first.total_steps):
        first.advance()
        job = make_job(config, {})
        job.load_state_dict(first.state_dict())
        found = [rate_of(job)]
        while job.step < job.total_steps:
            job.advance()
            found.append(rate_of(job))
        assert found == whole[at:], at
