"""What a worker that is started here serves: kinds, labels, slots, until when, at which address.

A label is a word for what is special about a machine (`a100`, `big-memory`); an operation asks for
one by its `queue`.
"""

import ipaddress
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from trainops import worker_end
from trainops.kind import KINDS
from trainops.runtime.labels import LABEL_RULE, is_label

# Beside the slots of every worker: for operations that wait for what others do. If these took
# slots, as many of them as there are slots would wait for each other for ever.
NUM_WAIT_SLOTS = 4


@dataclass(frozen=True, slots=True)
class Serving:
    kinds: tuple[str, ...]
    labels: tuple[str, ...]  # besides these: operations that ask for none
    slots: int
    ends_at: float | None = None  # Unix time; None: it has no end
    idle_exit_seconds: float | None = None  # None: it waits for work without end
    node_address: str = ""  # at which other workers reach it; empty: found out


def read(environment: Mapping[str, str] = os.environ) -> Serving:
    """Return what TRAINOPS_WORKER_KINDS, _QUEUES, _SLOTS, _UNTIL and _IDLE_EXIT say.

    Raises:
        ValueError: for every variable that is wrong, what it is and what it must be.
    """
    kinds = _words(environment.get("TRAINOPS_WORKER_KINDS", ""))
    labels = _words(environment.get("TRAINOPS_WORKER_QUEUES", ""))
    slots = environment.get("TRAINOPS_WORKER_SLOTS") or "1"
    address = environment.get("TRAINOPS_NODE_ADDRESS", "")
    problems = [
        *_problems_of_kinds(kinds),
        *_problems_of_labels(labels),
        *_problem_of(slots),
        *_problem_of_address(address),
    ]
    ends_at = idle_exit_seconds = None
    try:
        ends_at = worker_end.ends_at(environment, now=time.time())
        idle_exit_seconds = worker_end.idle_exit_seconds(environment)
    except ValueError as problem:
        problems.append(str(problem))
    if problems:
        raise ValueError("; ".join(problems))
    return Serving(kinds or KINDS.computed, labels, int(slots), ends_at, idle_exit_seconds, address)


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _problems_of_kinds(kinds: Iterable[str]) -> Iterator[str]:
    for kind in kinds:
        if kind not in KINDS.computed:
            near = get_close_matches(kind, KINDS.computed, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            allowed = ", ".join(KINDS.computed)
            yield f"TRAINOPS_WORKER_KINDS holds {kind!r}{hint}; allowed: {allowed}"


def _problems_of_labels(labels: Iterable[str]) -> Iterator[str]:
    for label in labels:
        if not is_label(label):
            yield f"TRAINOPS_WORKER_QUEUES holds {label!r}; {LABEL_RULE}"


def _problem_of_address(address: str) -> Iterator[str]:
    try:
        if address:
            ipaddress.ip_address(address)
    except ValueError:
        example = "it must be an IP address of this machine, such as 10.0.0.7"
        yield f"TRAINOPS_NODE_ADDRESS is {address!r}; {example}"


def _problem_of(slots: str) -> Iterator[str]:
    if not (slots.isascii() and slots.isdigit() and 1 <= int(slots) <= 1024):
        yield f"TRAINOPS_WORKER_SLOTS is {slots!r}; it must be a whole number from 1 to 1024"
