"""What a recipe forgot: found by the values that differ after a resume; each has a remedy."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainops.checking.messages import Graph, Leaf

MAX_FINDINGS = 8
MAX_NAMED = 3  # values in a sentence
BEGINNING_ANEW = {  # around a loop that continues at its place: the problem, the remedy
    "enumerate": (
        "counts from its start again after a resume, while the loop continues at its place",
        "Loop without enumerate: num_taken of the loop is the number of items that were taken in "
        "this pass (batches.num_taken - 1 instead of the counter).",
    ),
    "zip": (
        "takes its other items from their beginning after a resume, while the loop continues at "
        "its place",
        "Take them by their number (values[batches.num_taken - 1]), or several loaders by "
        "run.combine.",
    ),
}


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that makes a resume inexact. subject: its path or name; empty: not known."""

    category: str
    subject: str
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Pair:
    """One value in the undisturbed run and in the resumed one, at the same step."""

    path: str
    before: Leaf
    after: Leaf


def forgotten(undisturbed: Sequence[Graph], resumed: Sequence[Graph]) -> list[Cause]:
    """Return a finding for each object whose values a resume does not bring back.

    A value counts if it differs right after the resume and still after the next step: others are
    caches, or variables that the next iteration sets.
    """
    first, *later = [
        list(_pairs(one.leaves, other.leaves))
        for one, other in _at_same_steps(undisturbed, resumed)
    ] or [[]]
    lasting = [each for each in first if all(_has(each.path, pairs) for pairs in later)]
    created = [
        each
        for pairs in later
        for each in pairs
        if not each.before.is_local and _is_new(each.path, undisturbed, resumed)
    ]
    return _findings([*lasting, *created])


def unstable(one: Sequence[Graph], other: Sequence[Graph]) -> list[str]:
    """Return the subjects that differ between two undisturbed runs, at the earliest step."""
    for before, after in _at_same_steps(one, other):
        subjects = [_subject(each) for each in _pairs(before.leaves, after.leaves)]
        if subjects:
            return list(dict.fromkeys(subjects))[:MAX_NAMED]
    return []


def _at_same_steps(one: Sequence[Graph], other: Sequence[Graph]) -> Iterator[tuple[Graph, Graph]]:
    by_step = {each.step: each for each in other}
    return ((each, by_step[each.step]) for each in one if each.step in by_step)


def _pairs(one: Mapping[str, Leaf], other: Mapping[str, Leaf]) -> Iterator[Pair]:
    for path, leaf in one.items():
        if path in other and leaf.digest != other[path].digest:
            yield Pair(path, leaf, other[path])


def _has(path: str, pairs: Sequence[Pair]) -> bool:
    return any(each.path == path for each in pairs)


def _is_new(path: str, undisturbed: Sequence[Graph], resumed: Sequence[Graph]) -> bool:
    """Whether the undisturbed run had this value already, and the resumed one made it anew."""
    return path in undisturbed[0].leaves and path not in resumed[0].leaves


def _subject(pair: Pair) -> str:
    """Return the path of what a person has to change."""
    leaf = pair.before
    if leaf.is_generator:
        return pair.path
    return leaf.iterator or (leaf.owner if _is_unsaved(leaf) else "") or _attribute(pair)


def _is_unsaved(leaf: Leaf) -> bool:
    """Whether the whole owner is missing from checkpoints, not an attribute of it."""
    return bool(leaf.owner) and (leaf.is_local or leaf.is_registered)


def _attribute(pair: Pair) -> str:
    """Return the path up to the attribute or variable, without what is in a container."""
    holder = pair.before.holder
    if holder:
        return f"{holder}.{_first(pair.path.removeprefix(holder).lstrip('.'))}"
    root = _first(pair.path)
    inner = pair.path.removeprefix(root).lstrip(".")
    if pair.before.is_local or not inner or inner.startswith("["):
        return root
    return f"{root}.{_first(inner)}"  # a variable that a function refers to


def _first(path: str) -> str:
    return path.partition(".")[0].partition("[")[0] or path


def _findings(pairs: Sequence[Pair]) -> list[Cause]:
    found: dict[str, Cause] = {}
    for pair in pairs:
        subject = _subject(pair)
        if subject not in found:
            found[subject] = _finding(subject, pair)
    return list(found.values())[:MAX_FINDINGS]


def _finding(subject: str, pair: Pair) -> Cause:
    leaf = pair.before
    if leaf.is_generator:
        return _of_generator(subject, leaf)
    if leaf.iterator:
        return _of_iterator(subject, leaf)
    values = f"{leaf.shown} before the stop, {pair.after.shown} after the resume"
    if leaf.is_local:
        return _of_local(subject, leaf, values)
    if _is_unsaved(leaf):
        return Cause(
            "not_kept", subject,
            f"{subject} ({leaf.owner_type}) changes while training, and no checkpoint holds it",
            "Make it part of the model (assign it as a submodule), or keep it: "
            f'run.keep("{_name(subject)}", ...).',
        )  # fmt: skip
    return _of_attribute(subject, leaf, values)


def _of_attribute(subject: str, leaf: Leaf, values: str) -> Cause:
    problem = f"{subject} is a plain attribute that changes while training ({values})"
    if leaf.is_module:
        remedy = (
            f'Make it a buffer: self.register_buffer("{_name(subject)}", torch.tensor(...)), '
            "or keep it in a dict that is kept."
        )
    elif leaf.owner:
        remedy = f"Add it to the state_dict and load_state_dict of {leaf.owner_type}."
    elif leaf.holder:
        remedy = (
            f"Give {leaf.holder_type} a state_dict and load_state_dict and keep it, or derive "
            "the value from its arguments (an index, the step)."
        )
    else:
        problem = f"{subject} is a global variable that changes while training ({values})"
        remedy = "Make it a buffer of the model, or a value of a dict that is kept."
    return Cause("attribute", subject, problem, remedy)


def _of_local(subject: str, leaf: Leaf, values: str) -> Cause:
    name = _name(subject)
    if leaf.owner:
        return Cause(
            "not_kept", subject,
            f"{subject} ({leaf.owner_type}) has a state that changes while training, "
            "and is not kept",
            f'Keep it before the first loop: {name} = run.keep("{name}", {name}).',
        )  # fmt: skip
    return Cause(
        "local", subject,
        f"{subject} is a local variable that outlives an iteration ({values})",
        f'Keep it in a dict: sums = run.keep("sums", {{"{name}": ...}}), and change '
        f'sums["{name}"].',
    )  # fmt: skip


def _of_generator(subject: str, leaf: Leaf) -> Cause:
    where = "a local variable" if leaf.is_local else "made after the first step began"
    return Cause(
        "generator", subject,
        f"{subject} is a random generator that no checkpoint holds ({where})",
        "Draw from the global streams of torch, NumPy or Python, or make it before the first "
        "step an attribute of something that is kept (the model, the dataset).",
    )  # fmt: skip


def _of_iterator(subject: str, leaf: Leaf) -> Cause:
    if leaf.is_local and leaf.iterator_type in BEGINNING_ANEW and not leaf.holder:
        problem, remedy = BEGINNING_ANEW[leaf.iterator_type]
        return Cause("iterator", subject, f"{subject} {problem}", remedy)
    return Cause(
        "iterator", subject,
        f"{subject} is a partly consumed iterator ({leaf.iterator_type}) without a state: its "
        "position is lost",
        "Loop over run.loader(...), or make the iterator anew in each epoch, or keep an object "
        "with state_dict and load_state_dict that knows its position.",
    )  # fmt: skip


def suspects(undisturbed: Sequence[Graph], resumed: Sequence[Graph]) -> list[Cause]:
    """Return a finding for each iterator whose position cannot be read."""
    return [
        _of_iterator(path, leaf)
        for path, leaf in (undisturbed[0].leaves.items() if undisturbed and resumed else ())
        if leaf.is_opaque and path in resumed[0].leaves
    ][:MAX_NAMED]


def _name(subject: str) -> str:
    return subject.rpartition(".")[2].partition("[")[0]
