"""What a fork of a training loop changes in the state: a finished loop continues."""

from collections.abc import Mapping
from typing import Any

from trainops.kinds.loop.config import LoopConfig
from trainops.kinds.loop.course import ROOT
from trainops.kinds.loop.kind import MAX_STEPS
from trainops.kinds.loop.run import TRAINING
from trainops.runtime.job import StateDict


def adapt(state: StateDict, before: LoopConfig, after: LoopConfig) -> StateDict:
    """Return the state; that of a finished loop before the end of its last outermost loop.

    With other parameters this loop may be longer now: the function is called again and continues
    with its next item. Where max_steps ended a pass of the loader "train" before its end, and is
    another number now, that pass continues.
    """
    plain = state["state"]
    loops = plain["course"]["loops"]
    outermost = [name for name, counts in loops.items() if counts["parent"] == ROOT]
    if not plain.get("is_finished") or before.parameters == after.parameters or not outermost:
        return state
    course: Mapping[str, Any] = {**plain["course"], "open": outermost[-1:]}
    if before.parameters.get(MAX_STEPS) != after.parameters.get(MAX_STEPS):
        course = _within_pass(course)
    return {**state, "state": {**plain, "is_finished": False, "course": course}}


def _within_pass(course: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the place within the latest pass over the loader "train" that has items left."""
    (outermost,), loops = course["open"], course["loops"]
    train = loops.get(TRAINING)
    if train is None or train["parent"] != outermost:
        return course
    if train["length"] is not None and train["taken"] >= train["length"]:
        return course
    # Loops after it in the same iteration, such as an evaluation, are entered again.
    anew = {
        name: {**each, "opens": 0}
        for name, each in loops.items()
        if each["parent"] == outermost and name != TRAINING
    }
    return {"open": [outermost, TRAINING], "loops": {**loops, **anew}}
