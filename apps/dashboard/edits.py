"""Edits of the form of a new operation, kept where another recipe is chosen."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass

from apps.dashboard.fields import NOTHING, FormField, put
from apps.dashboard.form import PREFIX, Form
from trainops.kind import KINDS
from trainops.recipes import Recipe
from trainops.runtime.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Carried:
    """What became of the edits: labels of those kept, and of the others with the reason."""

    kept: list[str]
    dropped: dict[str, str]


def carry(before: Form, recipe: Recipe) -> tuple[Form, Carried]:
    """Return the form of another recipe with the edits of `before` that are valid in it.

    A field is edited if its value differs from that of the example of its recipe.
    """
    edited = _edited(before)
    fields = {field.path for field in Form(recipe, recipe.example).fields}
    kept = {path: value for path, (_, value) in edited.items() if path in fields}
    dropped = {path: f"{recipe.label} has no such field" for path in edited if path not in fields}
    while problems := _problems(recipe, kept):
        dropped |= problems
        kept = {path: value for path, value in kept.items() if path not in problems}
    labels = {path: label for path, (label, _) in edited.items()}
    carried = Carried(
        [labels[path] for path in kept], {labels[path]: why for path, why in dropped.items()}
    )
    return Form(recipe, _config(recipe, kept), study=before.posted), carried


def _edited(form: Form) -> dict[str, tuple[str, object]]:
    """Return label and value of the edited fields by path."""
    shown = {field.path: _value(field) for field in Form(form.recipe, form.recipe.example).fields}
    posted = ((field, _value(field)) for field in form.fields if _is_posted(form, field))
    return {
        field.path: (field.full_label, value)
        for field, value in posted
        if value not in (NOTHING, shown.get(field.path, NOTHING))
    }


def _is_posted(form: Form, field: FormField) -> bool:
    """Whether the browser sent a field; of a switch that is off it sends nothing."""
    return field.kind == "switch" or f"{PREFIX}{field.path}" in (form.posted or {})


def _value(field: FormField) -> object:
    match field.text:
        case bool():
            return field.text
        case list():
            return field.value(field.text)
        case _:
            return field.value([field.text])


def _problems(recipe: Recipe, edits: Mapping[str, object]) -> dict[str, str]:
    """Return what is wrong with edits in the config of a recipe, by path of the edit."""
    try:
        KINDS[recipe.kind].parse_config(_config(recipe, edits))
    except ConfigError as error:
        return {
            edit: why
            for path, why in error.errors.items()
            for edit in edits
            if path == edit or path.startswith(f"{edit}.")
        }
    return {}


def _config(recipe: Recipe, edits: Mapping[str, object]) -> dict[str, object]:
    config: dict[str, object] = deepcopy(dict(recipe.example))
    for path, value in edits.items():
        put(config, path, value)
    return config
