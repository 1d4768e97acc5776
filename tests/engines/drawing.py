"""Configs drawn over every field of a schema, and which fields they varied.

A kind's tests say which values each field is drawn from (`Space`), and try what they promise on
`Space.pairwise` (few configs in which every two values of two fields meet) and on
`Space.configs` (a hypothesis strategy, for a search). `Space.unvaried` names the fields that no
config varied: a field that is added to the schema must be added to the space.
"""

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from trainops.runtime.config import Strict

LEFT_OUT = object()  # a value of a field that is not given, and so has its default
SECONDS = float(os.environ.get("TRAINOPS_TEST_SEARCH_SECONDS", "100"))  # of one `search`
Flat = dict[str, Any]  # by dotted path


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted path and the annotation of each field, models in models opened up.

    A list, dict or choice of models is one field; the fields of these models follow as
    "path[].name", only so that it can be seen whether they were varied.
    """
    for name, field in model.model_fields.items():
        path, annotation = f"{prefix}{name}", field.annotation
        if _is_model(annotation):
            yield from fields(annotation, f"{path}.")
            continue
        yield path, annotation
        for inner in _models_in(annotation):
            yield from fields(inner, f"{path}[].")


class Space:
    """Configs of one schema: the values that each field is drawn from.

    `values` are by dotted path. Booleans and choices (`Literal`) need none; of all others at least
    two, else ValueError. What has one choice only is left out. `settle` changes a drawn config, by
    path, into one that is valid: what cannot be had together is decided there.
    """

    def __init__(
        self,
        model: type[Strict],
        values: Mapping[str, Sequence[Any]],
        settle: Callable[[Flat], Flat] = dict,
    ) -> None:
        self.model, self._settle = model, settle
        self.paths = {
            path: annotation for path, annotation in fields(model) if len(_choices(annotation)) != 1
        }
        given_whole = [path for path in self.paths if "[]" not in path]
        if unknown := sorted(values.keys() - set(given_whole)):
            raise ValueError(f"{model.__name__} has no {', '.join(unknown)}")
        self.values = {
            path: list(values.get(path) or _choices(self.paths[path])) for path in given_whole
        }
        if few := [path for path, drawn in self.values.items() if len(drawn) < 2]:
            raise ValueError(f"two values or more are needed of {', '.join(few)}")

    def configs(self) -> st.SearchStrategy[dict[str, Any]]:
        """Return a strategy of valid raw configs."""
        drawn = {path: st.integers(0, len(each) - 1) for path, each in self.values.items()}
        return st.fixed_dictionaries(drawn).map(self._config)

    def pairwise(self, together: Sequence[str] = (), chance: int = 0) -> list[dict[str, Any]]:
        """Return few raw configs in which every two values of two fields meet.

        So do all values of the fields named in `together`. Greedy: each config begins with values
        that have not met and takes, field by field in random order, the value that makes the most
        new pairs. What `settle` changes may part some.
        """
        rng = random.Random(chance)  # noqa: S311
        groups = [*combinations(self.values, 2), together]
        missing = {
            frozenset(zip(group, numbers, strict=True))
            for group in groups
            for numbers in product(*(range(len(self.values[path])) for path in group))
        }
        rows = []
        while missing:
            row = dict(max(missing, key=lambda each: (len(each), sorted(each))))
            for path in rng.sample(list(self.values), len(self.values)):
                if path not in row:
                    numbers = rng.sample(range(len(self.values[path])), len(self.values[path]))
                    row[path] = max(numbers, key=lambda i: _new_pairs(missing, row, (path, i)))
            missing = {each for each in missing if not each <= row.items()}
            rows.append(self._config(row))
        return rows

    def unvaried(self, configs: Iterable[Mapping[str, Any]]) -> list[str]:
        """Return the fields that have one and the same value in all these raw configs."""
        seen: dict[str, set[str]] = {path: set() for path in self.paths}
        for config in configs:
            dump = self.model.parse(config).model_dump(mode="json")
            for path, found in seen.items():
                found |= {repr(value) for value in _at(dump, path.replace("[]", ".[]").split("."))}
        return [path for path, found in seen.items() if len(found) < 2]

    def _config(self, numbers: Mapping[str, int]) -> dict[str, Any]:
        drawn = {path: self.values[path][number] for path, number in numbers.items()}
        config: dict[str, Any] = {}
        for path, value in self._settle(drawn).items():
            if value is LEFT_OUT:
                continue
            *owners, name = path.split(".")
            owner = config
            for each in owners:
                owner = owner.setdefault(each, {})
            owner[name] = value
        return config


def search(check: Callable[..., object], **drawn: st.SearchStrategy[Any]) -> None:
    """Try `check` on cases that are new in each run, until time is up.

    Hypothesis makes a failing case small and prints it. TRAINOPS_TEST_SEARCH_SECONDS says how long.
    """
    end, number = time.monotonic() + SECONDS, time.time_ns()
    rounds = settings(
        max_examples=50, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )

    def tried(**case: Any) -> None:
        check(**case)

    while time.monotonic() < end:
        seed(number)(rounds(given(**drawn)(tried)))()
        number += 1


def _new_pairs(missing: set[Any], row: Mapping[str, int], value: tuple[str, int]) -> int:
    return sum(frozenset({value, other}) in missing for other in row.items())


def _choices(annotation: Any) -> Sequence[Any]:
    """Return all values of a boolean or a Literal, with None where it may be that."""
    if annotation is bool:
        return [False, True]
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if get_origin(annotation) in (Union, UnionType):
        parts = [[None] if each is type(None) else _choices(each) for each in get_args(annotation)]
        return [value for part in parts for value in part] if all(parts) else []
    return []


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    for inner in get_args(annotation):
        if _is_model(inner):
            yield inner
        else:
            yield from _models_in(inner)


def _at(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """Yield what lies at a path; of a list or dict of models, in each of them that has it."""
    if not path:
        yield value
    elif path[0] != "[]":
        if isinstance(value, Mapping) and path[0] in value:
            yield from _at(value[path[0]], path[1:])
    else:
        several = value if isinstance(value, list) else [value]
        if isinstance(value, Mapping) and path[1] not in value:
            several = list(value.values())
        for each in several:
            yield from _at(each, path[1:])
