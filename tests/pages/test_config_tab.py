"""The tab Config: what differs from the defaults and from the parent, and the file for `run`."""

import pytest

from apps.dashboard import config_table
from apps.operations.models import Operation
from apps.operations.requests.submission import submit
from tests.pages import making
from trainops import operation_yaml
from trainops.plain_yaml import parsed
from trainops.recipes import recipes


def lines_of(operation):
    return {line.path: line for line in config_table.of(operation)["config_lines"]}


def test_fields_that_differ_from_the_defaults_are_marked(page, ana):
    operation = making.operation(ana)
    lines = lines_of(operation)
    assert (lines["epochs"].default, lines["epochs"].is_changed) == ("10", True)
    assert (lines["momentum"].value, lines["momentum"].is_changed) == ("0.9", False)
    assert (lines["recipe"].default, lines["recipe"].is_changed) == ("", True)
    text = page.get(f"/operations/{operation.pk}/").content.decode()
    table = text.partition('data-testid="config-fields"')[2].partition("</table>")[0]
    num_changed = sum(line.is_changed for line in lines.values())
    assert table.count('class="is-changed"') == num_changed
    assert f"default: {num_changed} of {len(lines)} fields" in text


def test_defaults_are_those_of_the_recipe_and_the_installation(ana, settings):
    every = settings.THRESHOLDS.checkpoint_time_interval_seconds + 1
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(
        update={"checkpoint_time_interval_seconds": every}
    )
    operation = making.operation(ana)
    lines = lines_of(operation)
    assert lines["checkpoint.every_seconds"].default == str(every)
    assert not lines["checkpoint.every_seconds"].is_changed
    assert lines["parameters.channels"].default == "16"
    operation.config["parameters"]["channels"] = 8
    assert lines_of(operation)["parameters.channels"].is_changed


@pytest.mark.parametrize("name", ["digits", "digits_loop", "grid_world", "federated_digits"])
def test_every_kind_has_defaults(db, name):
    recipe = recipes()[name]
    operation = Operation(kind=recipe.kind, config=recipe.example, config_given={}, pk="op_x")
    assert config_table.of(operation)["has_defaults"]


def test_a_recipe_that_is_gone_has_no_defaults(page, ana):
    operation = making.operation(ana)
    operation.row.update(config={**operation.config, "recipe": "gone"})
    text = page.get(f"/operations/{operation.pk}/").content.decode()
    assert "The defaults are not known" in text and "is-changed" not in text


def test_what_differs_from_the_parent_of_a_fork_is_marked(page, ana):
    parent = making.operation(ana, "COMPLETED", name="the parent")
    child = making.operation(ana, forked_from=parent)
    child.row.update(config={**child.config, "epochs": 7})
    text = page.get(f"/operations/{child.pk}/").content.decode()
    assert "Different from the parent" in text and ">the parent</a>: 1." in text
    lines = lines_of(Operation.objects.get(pk=child.pk))
    assert [path for path, line in lines.items() if line.differs_from_parent] == ["epochs"]
    assert lines["epochs"].before == "5"


def test_the_parent_of_a_warm_start_is_that_of_its_first_event(ana):
    parent = making.operation(ana, "COMPLETED")
    child = making.operation(ana)
    assert config_table.of(child)["config_parent"] is None
    child.record("WARM_STARTED", actor="ana", note=f"weights of {parent.pk}, step 20; a: b")
    assert config_table.of(child)["config_parent"] == parent


ODD = ["no", "1e3", "1E-3", "010", "0x1F", "null", "~", "1:30", "2024-01-31", "é 📈", "a: b #c", ""]


def test_the_file_is_read_by_the_command_line_as_it_was_submitted(ana):
    config = {"recipe": "digits", "odd": ODD, "rate": 1e-05, "flag": True, "none": None}
    text = operation_yaml.written("training", "1e3", config, tags=["1e5"], priority=0, queue="")
    assert parsed(text)[0] == {
        "kind": "training",
        "name": "1e3",
        "tags": ["1e5"],
        "config": config,
    }


def test_the_copied_file_submits_the_same_config(page, ana):
    operation = making.operation(ana, name="x", tags=["night"], priority=3)
    copied = config_table.of(operation)["config_yaml"]
    again = submit(owner=ana, **parsed(copied)[0])
    assert again.config == operation.config and again.priority == 3
    assert [tag.name for tag in again.tags.all()] == ["night"]
