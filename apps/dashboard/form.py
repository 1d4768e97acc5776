"""The form of a new operation: a recipe's fields with their texts, and what they mean."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from django.db.models import Q
from django.http import QueryDict

from apps.dashboard import trying
from apps.dashboard.fields import (
    COLUMN,
    COLUMNS,
    NOTHING,
    FormField,
    Text,
    at,
    fields_of,
    put,
)
from apps.datasets.models import DIRECTORY, Dataset
from apps.datasets.tables.rows import ColumnRow
from apps.operations.lifecycle import State
from apps.operations.models import Operation
from trainops.kind import KINDS, Objective
from trainops.recipes import Recipe, recipes

PARAMETERS = "parameters."
PREFIX = "config."  # of the inputs' names, apart from those of OWN
SHOWN = "shown."  # of choices with fields of their own: the value with which they were shown
ALWAYS_BASIC = ("epochs", "batch_size", "learning_rate")
OWN = ("name", "tags", "priority", "queue", "project")  # the operation's own, beside its config
HIDDEN = ("recipe", "parameters")  # the recipe is chosen above; its parameters are the fields


@dataclass
class Form:
    """A recipe's form. Made from a config (an example, a clone) or from what was posted."""

    recipe: Recipe
    config: Mapping[str, object]
    posted: QueryDict | None = None
    errors: Mapping[str, str] | None = None
    study: trying.Typed | None = None  # fields of a study that were posted without this form
    may_differ: Collection[str] | None = None  # first names of the shown fields; None: all
    again: Operation | None = None  # what runs again: only what it was given is shown at once

    @cached_property
    def datasets(self) -> list[Dataset]:
        needs_one = any(field.kind == "dataset" for field in self._blank)
        columns = ("id", "name", "num_rows", "columns")
        uploads = Dataset.objects.exclude(format=DIRECTORY)
        return list(uploads.only(*columns)[:200]) if needs_one else []

    @cached_property
    def directories(self) -> list[Dataset]:
        needs_one = any(field.kind == "directory" for field in self._blank)
        registered = Dataset.objects.filter(format=DIRECTORY)
        return list(registered.only("id", "name", "num_rows")[:200]) if needs_one else []

    @cached_property
    def models(self) -> list[Operation]:
        """The completed trainings whose model can be chosen, the newest first."""
        marks = self.recipe.model_marks().values()
        if not marks:
            return []
        fitting = Q()
        for mark in marks:
            of_kind = Q(kind=mark.kind)
            fitting |= of_kind & Q(recipe=mark.recipe) if mark.recipe else of_kind
        trained = Operation.objects.filter(fitting, state=State.COMPLETED)
        return list(trained.only("id", "name").order_by("-id")[:200])

    @cached_property
    def fields(self) -> list[FormField]:
        return [self._filled(field) for field in self._blank if self._is_shown(field)]

    @property
    def engine(self) -> str:
        """What the recipe's engine is called."""
        return KINDS[self.recipe.kind].label

    @property
    def may_walk_forward(self) -> bool:
        return bool(KINDS[self.recipe.kind].days)

    @property
    def parameters(self) -> list[FormField]:
        return [field for field in self.fields if field.path.startswith(PARAMETERS)]

    @property
    def basic(self) -> list[FormField]:
        """What is shown at once: plain fields first, then those of groups.

        Of an operation that runs again: also its parameters, edited fields and fields with errors.
        """
        if self.again:
            shown = [field for field in self.fields if self._is_changed(field)]
        else:
            own = (f for f in self.fields if not f.path.startswith(PARAMETERS))
            shown = [field for field in own if field.is_basic]
        apart = [replace(field, label=field.full_label) for field in shown]
        return sorted(apart, key=lambda field: bool(field.group))

    @property
    def advanced(self) -> dict[str, list[FormField]]:
        """The folded fields by group, in the order of the schema."""
        groups: dict[str, list[FormField]] = {}
        for field in self.fields:
            is_parameter = field.path.startswith(PARAMETERS)
            if self._is_changed(field) if self.again else field.is_basic or is_parameter:
                continue
            own = self.recipe.label if is_parameter else self.engine
            groups.setdefault(field.group or own, []).append(field)
        return groups

    @property
    def has_advanced_errors(self) -> bool:
        return any(field.error for fields in self.advanced.values() for field in fields)

    @property
    def unplaced_errors(self) -> dict[str, str]:
        """Problems that no field shows; they stand above the form."""
        shown = {field.path for field in self.fields} | set(OWN)
        return {path: why for path, why in (self.errors or {}).items() if path not in shown}

    @property
    def columns(self) -> list[ColumnRow]:
        """The columns of the chosen dataset."""
        chosen = {field.text for field in self.fields if field.kind == "dataset"}
        found = (dataset.columns for dataset in self.datasets if dataset.pk in chosen)
        return next(found, [])

    @property
    def tries(self) -> list[trying.Try]:
        """The rows in which several values are typed."""
        return trying.read(self._study)

    @property
    def max_tries(self) -> int:
        return trying.MAX_ROWS

    @property
    def triable(self) -> list[FormField]:
        """The fields to try; a condition may give an effect to those that have none so far."""
        shown = [field for field in self._every if self._is_shown(field)]
        return trying.choices(shown)

    @property
    def is_trying(self) -> bool:
        return self._study is not None and trying.is_wanted(self._study)

    @property
    def objectives(self) -> list[trying.TypedObjective]:
        return trying.objectives(self._study)

    @property
    def objective(self) -> Objective:
        """What studies of its kind compare by default."""
        return KINDS[self.recipe.kind].objective

    @property
    def metrics(self) -> list[str]:
        """Values of the result that are known; others may be named, too."""
        kind = KINDS[self.recipe.kind]
        return list(dict.fromkeys((kind.objective.metric, *kind.columns)))

    @property
    def modes(self) -> Iterable[tuple[str, str]]:
        return trying.MODES.items()

    @property
    def methods(self) -> Iterable[tuple[str, str]]:
        return trying.METHODS.items()

    @property
    def pruners(self) -> Iterable[tuple[str, str]]:
        return trying.PRUNERS.items()

    @property
    def search(self) -> Mapping[str, str]:
        """How the values of a study are searched, as typed."""
        return trying.search(self._study)

    @property
    def _study(self) -> trying.Typed | None:
        return self.posted if self.study is None else self.study

    def to_config(self, over: Mapping[str, object] | None = None) -> dict[str, object]:
        """Return what was posted, without what is the default anyway.

        Of a config that it changes, `over`, the result also sets fields back to their defaults.
        """
        config: dict[str, object] = {"recipe": self.recipe.name}
        found = []
        for field in self._blank:
            is_posted = f"{PREFIX}{field.path}" in (self.posted or {})
            if (self._is_shown(field) or is_posted) and not self._is_new(field):
                value = field.value(self._given(field))
                if value is not NOTHING:
                    found.append((field, value, at(over or {}, field.path) is not NOTHING))
        groups = {
            group
            for field, value, is_named in found
            if value != field.default or is_named
            for group in _groups(field.path)
        }
        for field, value, is_named in found:
            is_of_changed = not groups.isdisjoint(_groups(field.path))
            differs = value != field.default or (is_of_changed and value != field.own_default)
            if differs or is_named:
                put(config, field.path, value)
        return config

    @cached_property
    def _blank(self) -> list[FormField]:
        found = (field for field in self._every if field.has_effect or self._has(field))
        return [self._placed(field) for field in found]

    @cached_property
    def _every(self) -> list[FormField]:
        engine = fields_of(KINDS[self.recipe.kind].json_schema(), chosen=self._chosen)
        shown = [field for field in engine if field.path not in HIDDEN]
        parameters = fields_of(self.recipe.json_schema(), PARAMETERS, chosen=self._chosen)
        return [*parameters, *shown]

    def _has(self, field: FormField) -> bool:
        """Whether a field without effect was given all the same: it is kept."""
        if self.posted is not None:
            return f"{PREFIX}{field.path}" in self.posted and not self._is_new(field)
        is_given = at(self._source, field.path) is not NOTHING
        return is_given or at(self.config, field.path) not in (NOTHING, field.default)

    @property
    def _source(self) -> Mapping[str, object]:
        """The config that was given to the operation that runs again; empty without one."""
        return self.again.config_given if self.again else {}

    def _is_changed(self, field: FormField) -> bool:
        """Whether a field of an operation that runs again was given, or differs from it now."""
        if field.is_basic or field.error or self.again is None:
            return field.is_basic or bool(field.error)
        before, value = at(self.again.config, field.path), at(self.config, field.path)
        if self.posted is not None:
            value = field.value(self._given(field))
        return (field.default if value is NOTHING else value) != (
            field.default if before is NOTHING else before
        )

    def _chosen(self, path: str) -> object:
        if self.posted is not None:
            return self.posted.get(PREFIX + path) or NOTHING
        return at(self.config, path)

    def _is_new(self, field: FormField) -> bool:
        """Whether a choice was changed since the form was shown, and the field is there by it."""
        if self.posted is None or not field.decided_by:
            return False
        now = self.posted.get(PREFIX + field.decided_by)
        return self.posted.get(SHOWN + field.decided_by, now) != now

    def _is_shown(self, field: FormField) -> bool:
        return self.may_differ is None or field.path.partition(".")[0] in self.may_differ

    def _placed(self, field: FormField) -> FormField:
        """Mark what is shown at once: what the example or the source sets, and the usual three.

        Of an operation that runs again: also what differs from the default that it has now.
        """
        given = self._source if self.again else self.recipe.example
        is_basic = field.path in ALWAYS_BASIC or at(given, field.path) is not NOTHING
        return replace(field, is_basic=is_basic or self._is_of_earlier_default(field))

    def _is_of_earlier_default(self, field: FormField) -> bool:
        """Whether an operation that runs again has another value than the default of today."""
        before = at(self.again.config, field.path) if self.again else NOTHING
        return before not in (NOTHING, field.default)

    def _filled(self, field: FormField) -> FormField:
        error = (self.errors or {}).get(field.path) or self._inner_error(field)
        if self._is_new(field):
            filled = field.with_value(field.default)
            return replace(filled, text=_joined(filled))
        if self.posted is not None:
            return replace(field, text=_as_typed(field, self._given(field)), error=error)
        value = at(self.config, field.path)
        filled = field.with_value(field.default if value is NOTHING else value)
        if field.kind == "dataset" and filled.text not in {d.pk for d in self.datasets}:
            return replace(filled, text="")
        if field.kind == "directory" and filled.text not in {d.pk for d in self.directories}:
            return replace(filled, text="")
        if field.kind == "model" and filled.text not in {model.pk for model in self.models}:
            return replace(filled, text="")
        if field.kind in (COLUMN, COLUMNS) and not self._knows_dataset():
            return replace(filled, text=[] if field.kind == COLUMNS else "")
        return replace(filled, text=_joined(filled), error=error)

    def _knows_dataset(self) -> bool:
        chosen = [at(self.config, field.path) for field in self._blank if field.kind == "dataset"]
        return any(dataset.pk in chosen for dataset in self.datasets)

    def _inner_error(self, field: FormField) -> str:
        """A problem of one element of a list is a problem of the list."""
        inner = (
            f"{path.removeprefix(field.path + '.')}: {why}"
            for path, why in (self.errors or {}).items()
            if path.startswith(f"{field.path}.")
        )
        return "; ".join(inner)

    def _given(self, field: FormField) -> list[str]:
        return self.posted.getlist(PREFIX + field.path) if self.posted is not None else []


def _groups(path: str) -> set[str]:
    """Return the groups that a field lies in, but for that of all parameters."""
    parts = path.split(".")[:-1]
    return {".".join(parts[:end]) for end in range(1, len(parts) + 1)} - {"parameters"}


def _joined(field: FormField) -> Text:
    if field.kind == "list" and isinstance(field.text, list):
        return ", ".join(field.text)
    return field.text


def _as_typed(field: FormField, given: Sequence[str]) -> Text:
    if field.kind == "switch":
        return bool(given)
    if field.kind == COLUMNS:
        return list(given)
    return given[0] if given else ""


def choose(*names: str) -> Recipe | None:
    """Return the first recipe with one of the names, else the first one there is."""
    known = recipes()
    return next((known[name] for name in (*names, *known) if name in known), None)
