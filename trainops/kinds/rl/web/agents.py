"""What the page of a reinforcement learning operation shows besides curves. Pure.

All of it comes from the states of its checkpoints, and from its result once there is one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from apps.checkpoints.models import Checkpoint
from apps.operations.models import Operation

KIND = "rl"
MAX_CELLS = 4096  # that are drawn
MAX_LINES = 12  # agents whose stages are drawn
WIDTH, HEIGHT = 960, 180  # of the drawing of stages, in units of their own
WORDS = {"first": "first", "best": "best", "newest": "newest"}


@dataclass(frozen=True, slots=True)
class RecordingSource:
    """A checkpoint, or the result, that holds recorded episodes."""

    label: str
    plain: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Played:
    """An evaluation whose first episode was recorded; steps tell them apart."""

    step: int
    gained: float  # return
    label: str
    recording: Mapping[str, Any]


def panel(subject: Any) -> Mapping[str, Any] | None:
    found = context(subject.operation, subject.checkpoints)
    return found and found | {"sides": [(side, found.get(side)) for side in ("left", "right")]}


def files(subject: Any) -> Mapping[str, Any] | None:
    """Return the checkpoints that are offered as files of version 3, with their positions."""
    wanted = subject.shown_checkpoints
    return {"sources": [(each, subject.position(each)) for each in wanted]} if wanted else None


def context(operation: Operation, checkpoints: Sequence[Checkpoint]) -> dict[str, Any] | None:
    """Return the context of the template agents.html; None before anything was saved."""
    sources = list(sources_of(operation, checkpoints))
    if not sources:
        return None
    newest = sources[0].plain
    played = recordings(sources)
    world = played[0].recording["world"] if played else {}
    return {
        "agents": newest,
        "played": played,
        "left": _default(played, newest, "newest"),
        "right": _default(played, newest, "first"),
        "floors": floors(newest["tallies"].get("visits", []), world.get("size", [])),
        "uses": uses(newest["tallies"].get("uses", []), world.get("affordances", [])),
        "stages": stage_lines(newest),
        "members": members(newest),
    }


def sources_of(
    operation: Operation, checkpoints: Sequence[Checkpoint]
) -> Iterator[RecordingSource]:
    """Yield what holds recordings, the newest first."""
    if "evaluations" in (result := operation.result or {}):
        yield RecordingSource("result", {**result, "episodes_completed": result["episodes"]})
    for checkpoint in checkpoints:
        if "evaluations" in checkpoint.state:
            yield RecordingSource(f"checkpoint of step {checkpoint.step}", checkpoint.state)


def recordings(sources: Sequence[RecordingSource]) -> list[Played]:
    """Return each evaluation once, the newest first."""
    found: dict[int, Played] = {}
    for source in sources:
        for name, each in source.plain["evaluations"].items():
            kept = found.get(each["step"])
            said = f"step {each['step']:,}, episode {each['episode']:,}: {each['return']:.4g}"
            said += f", agent {each['agent']}" if "agent" in each else ""
            label = f"{kept.label if kept else said}"
            if not kept or (source.label == "result" and name == "best"):
                label = f"{said} ({WORDS[name]}, {source.label})"
            found[each["step"]] = Played(each["step"], each["return"], label, each["recording"])
    return sorted(found.values(), key=lambda played: -played.step)


def recording(
    operation: Operation, checkpoints: Sequence[Checkpoint], step: int
) -> Mapping[str, Any] | None:
    """Return the recorded episode of the evaluation at this step, if it is still there."""
    found = recordings(list(sources_of(operation, checkpoints)))
    return next((played.recording for played in found if played.step == step), None)


def floors(visits: Sequence[int], size: Sequence[int]) -> list[dict[str, Any]]:
    """Return the cells of each floor with how often they were visited, as places in a drawing.

    A world of one dimension has one row. Worlds too large to draw have no floors.
    """
    if not visits or not size or prod(size) > MAX_CELLS or not any(visits):
        return []
    width, height, depth = [*size, 1, 1][:3]
    most = max(visits)
    floors: list[dict[str, Any]] = []
    for level in range(depth):
        cells = [
            {
                "x": x,
                "y": height - 1 - y,
                "count": (count := visits[(x * height + y) * depth + level]),
                "share": f"{0.08 + 0.92 * (count / most) ** 0.5:.3f}" if count else "0.03",
            }
            for x in range(width)
            for y in range(height)
        ]
        name = f"floor {level}" if depth > 1 else ""
        floors.append({"width": width, "height": height, "cells": cells, "name": name})
    return floors


def uses(counts: Sequence[int], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return how often each affordance was used, the most used first."""
    most = max(counts, default=0) or 1
    lines = [
        {"name": name, "count": count, "percent": 100 * count / most}
        for name, count in zip(names, counts, strict=False)
    ]
    return sorted(lines, key=lambda line: -line["count"])


def members(plain: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a line for each agent with a network of its own, the best evaluated first."""
    evaluation = plain["evaluations"].get("newest", {})
    agents = plain.get("agents", [])
    returns = evaluation.get("returns") or [None] * len(agents)
    stages = plain["stages"] or [None] * len(agents)
    lines = [
        {**each, "agent": agent, "stage": stage, "evaluation": gained}
        for agent, (each, stage, gained) in enumerate(zip(agents, stages, returns, strict=False))
    ]
    return sorted(lines, key=lambda line: (line["evaluation"] is None, -(line["evaluation"] or 0)))


def stage_lines(plain: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the stages of agents over completed episodes, as points of SVG lines."""
    changes, now = plain["stage_changes"], plain["stages"]
    if not now:
        return None
    end = max(1, plain["episodes_completed"])
    top = max([*now, *(stage for _, _, stage in changes)], default=0) or 1
    lines = []
    for agent in range(min(len(now), MAX_LINES)):
        moves = [(episode, stage) for episode, mover, stage in changes if mover == agent]
        lines.append({"agent": agent, "stage": now[agent], "points": _steps(moves, end, top)})
    return {"lines": lines, "top": top, "end": end, "more": max(0, len(now) - MAX_LINES)}


def _steps(moves: Sequence[tuple[int, int]], end: int, top: int) -> str:
    """Return the points of a line that is level between moves."""
    points, at = [(0, 0)], 0
    for episode, stage in moves:
        points += [(episode, at), (episode, stage)]
        at = stage
    points.append((end, at))
    return " ".join(f"{WIDTH * x / end:.1f},{HEIGHT - HEIGHT * y / top:.1f}" for x, y in points)


def _default(played: Sequence[Played], plain: Mapping[str, Any], name: str) -> int | None:
    evaluation = plain["evaluations"].get(name)
    return evaluation["step"] if evaluation else played[0].step if played else None
