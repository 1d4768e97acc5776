"""Fields of the form that are there by a choice: the options of optimizers and schedules."""

import pytest
from django.http import QueryDict

from apps.dashboard.form import Form
from trainops.recipes import recipes

OPTIMIZER, SCHEDULE = "parameters.optimizer", "parameters.schedule"


def form(config=None, posted=None, recipe="digit_classifier"):
    data = None
    if posted is not None:
        data = QueryDict(mutable=True)
        data.update(posted)
    return Form(recipes()[recipe], config or {}, posted=data)


def field(found, path):
    return next((each for each in found.fields if each.path == path), None)


def posted_of(found, **changes):
    """Return what a browser sends of a form."""
    sent = {}
    for each in found.fields:
        text = ", ".join(each.text) if isinstance(each.text, list) else each.text
        if each.kind != "switch" or text:
            sent[f"config.{each.path}"] = "on" if text is True else text
        if each.decides:
            sent[f"shown.{each.path}"] = text
    return sent | changes


def test_the_options_of_the_chosen_ones_are_fields_with_types_defaults_and_bounds():
    found = form()
    betas, nesterov = (
        field(found, f"{OPTIMIZER}.options.{name}") for name in ("betas", "nesterov")
    )
    assert (betas.kind, betas.group, betas.text) == ("list", "Optimizer", "0.9, 0.999")
    assert nesterov is None  # AdamW has none
    length = field(found, f"{SCHEDULE}.options.T_max")
    assert (length.kind, length.minimum, length.nullable) == ("integer", 1, True)
    sgd = form({"parameters": {"optimizer": {"name": "SGD"}}})
    assert field(sgd, f"{OPTIMIZER}.options.nesterov").kind == "switch"
    muon = form({"parameters": {"optimizer": {"name": "Muon"}}})
    choices = field(muon, f"{OPTIMIZER}.options.adjust_lr_fn").choices
    assert choices == ("original", "match_rms_adamw")


def test_an_untouched_form_is_the_default_of_the_recipe():
    assert form(posted=posted_of(form())).to_config() == {"recipe": "digit_classifier"}


def test_another_choice_shows_its_options_with_their_defaults():
    sent = posted_of(form(), **{f"config.{OPTIMIZER}.name": "Muon"})
    sent[f"config.{OPTIMIZER}.options.eps"] = "0.5"  # of AdamW
    found = form(posted=sent)
    assert field(found, f"{OPTIMIZER}.options.nesterov").text is True
    assert field(found, f"{OPTIMIZER}.options.eps").text == "1e-07"
    assert found.to_config()["parameters"] == {"optimizer": {"name": "Muon"}}
    again = form(posted=posted_of(found))
    assert again.to_config()["parameters"] == {"optimizer": {"name": "Muon"}}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"optimizer.options.betas": "0.8, 0.99"},
            {"optimizer": {"options": {"betas": [0.8, 0.99]}}},
        ),
        ({"schedule.name": "none"}, {"schedule": {"name": "none"}}),
        (
            {"schedule.options.T_max": "7"},  # the name is that of the recipe, not of the settings
            {"schedule": {"name": "CosineAnnealingLR", "options": {"T_max": 7}}},
        ),
    ],
)
def test_a_group_is_given_with_what_differs_from_its_own_defaults(changes, expected):
    sent = {f"config.parameters.{name}": text for name, text in changes.items()}
    found = form(posted=posted_of(form(), **sent))
    assert found.to_config()["parameters"] == expected


def test_the_page_asks_for_the_fields_of_another_choice(page):
    shown = page.get("/operations/new?recipe=digit_classifier").content.decode()
    assert f'name="shown.{OPTIMIZER}.name" value="AdamW"' in shown
    assert f'name="config.{OPTIMIZER}.options.betas" value="0.9, 0.999"' in shown


FLAT = ("momentum", "scheduler_step_epochs", "scheduler_factor", "warmup_fraction")


def flat(found):
    return [each.path for each in found.fields if each.path in FLAT]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, []),
        ({"optimizer": "sgd"}, ["momentum"]),
        ({"scheduler": "cosine"}, []),
        ({"scheduler": "step"}, ["scheduler_step_epochs", "scheduler_factor"]),
        ({"scheduler": "onecycle"}, ["warmup_fraction"]),
        ({"optimizer": "sgd", "scheduler": "warmup_cosine"}, ["momentum", "warmup_fraction"]),
        ({"momentum": 0.5}, ["momentum"]),  # without effect, but given
        ({"momentum": 0.9}, []),
    ],
)
def test_fields_of_an_optimizer_and_a_schedule_are_shown_with_them(config, expected):
    assert flat(form(config, recipe="digits")) == expected


def test_another_optimizer_shows_and_drops_its_own_fields():
    sent = posted_of(form(recipe="digits"), **{"config.optimizer": "sgd"})
    sgd = form(posted=sent, recipe="digits")
    assert (flat(sgd), field(sgd, "momentum").text) == (["momentum"], "0.9")
    sent = posted_of(sgd, **{"config.momentum": "0.5"})
    found = form(posted=sent, recipe="digits")
    config = found.to_config()
    assert (config["optimizer"], config["momentum"]) == ("sgd", 0.5)
    again = form(posted=posted_of(found, **{"config.optimizer": "adamw"}), recipe="digits")
    assert flat(again) == [] and again.to_config().keys() == {"recipe", "optimizer"}


def test_a_field_without_effect_keeps_what_was_given():
    found = form({"momentum": 0.5}, recipe="digits")
    assert form(posted=posted_of(found), recipe="digits").to_config()["momentum"] == 0.5
