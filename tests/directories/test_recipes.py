"""The recipes that train from a directory: exact at every stop, and clear about bad data."""

from contextlib import suppress
from pathlib import Path

import pytest
import torch

from examples import directories
from tests.directories import making
from tests.engines.contract import (
    Case,
    MachineDied,
    ScriptedSupervisor,
    attempt,
    let_savings_land,
    require_same_end,
)
from trainops.cli import submission
from trainops.kind import KINDS
from trainops.kinds.loop.recipes import characters_module
from trainops.kinds.loop.recipes.large_table_loop import Scaled
from trainops.kinds.loop.seeding import seed_of
from trainops.learning.readers import ParquetRows
from trainops.paths import ROOT
from trainops.runtime.errors import ConfigError
from trainops.runtime.loop import Directive, Failed, Succeeded

DATASET = "ds_0000000000000000"


def write_text(root):
    (root / "a.txt").write_text("some text " * 9)
    (root / "b.txt").write_text("and another one, é " * 5)


class DirectoryCase(Case):
    """A case whose dataset is a registered directory."""

    location: Path

    def inputs(self, root):
        return {DATASET: self.location}


@pytest.fixture
def case(data, register):
    """Make a case of a recipe over data that `fill` writes."""

    def case(recipe, fill, **parameters):
        fill(data)
        config = {"recipe": recipe, "parameters": {"directory": DATASET, **parameters}}
        made = DirectoryCase("loop", recipe, {**config, "threads": 1, "log_every_steps": 1}, ())
        object.__setattr__(made, "location", register(data))
        return made

    return case


SMALL = {
    "image_folders": (
        making.image_folders,
        {"epochs": 2, "batch_size": 4, "side": 8, "channels": 2, "validation_fraction": 0.4},
    ),
    "characters": (
        lambda root: write_text(root),
        {"epochs": 2, "batch_size": 4, "length": 8, "width": 8, "layers": 1},
    ),
    "large_table": (
        lambda root: numbers(root),
        {"epochs": 2, "batch_size": 5, "target": "y", "width": 3, "validation_fraction": 0.3},
    ),
}


def numbers(root):
    """Write two files of 12 rows in row groups of 3."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for file in range(2):
        rng = torch.Generator().manual_seed(file)
        columns = {name: torch.randn(12, generator=rng).numpy() for name in ("a", "b", "y")}
        pq.write_table(pa.table(columns), root / f"{file}.parquet", row_group_size=3)


@pytest.mark.slow
@pytest.mark.parametrize("stops", [3, pytest.param(None, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("recipe", SMALL)
@pytest.mark.parametrize("dies", [False, True], ids=["stopped", "killed"])
def test_stopped_at_any_step_it_continues_to_the_same_end(case, tmp_path, recipe, dies, stops):
    fill, parameters = SMALL[recipe]
    made = case(recipe, fill, **parameters)
    whole = ScriptedSupervisor()
    assert isinstance(attempt(made, tmp_path / "whole", whole), Succeeded)
    num_steps = whole.progress[-1].step
    for at in [stops] if stops else range(2, num_steps):
        root = tmp_path / f"{at}"
        first = ScriptedSupervisor(at=at, dies=dies)
        with suppress(MachineDied):
            attempt(made, root, first, every_steps=1)
        let_savings_land()
        second = ScriptedSupervisor()
        outcome = attempt(made, root, second, resume=first.checkpoints[-1:], number=2)
        assert isinstance(outcome, Succeeded), outcome
        require_same_end(whole, [first, second])


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [1, 2])
def test_the_number_of_worker_processes_changes_nothing(case, tmp_path, num_workers):
    fill, parameters = SMALL["image_folders"]
    made = case("image_folders", fill, **parameters)
    ends = []
    for number in (0, num_workers):
        found = ScriptedSupervisor()
        config = made.config["parameters"] | {"num_workers": number}
        assert isinstance(
            attempt(made, tmp_path / f"w{len(ends)}", found, parameters=config), Succeeded
        )
        ends.append(found)
    require_same_end(ends[0], ends[1:])


def test_the_rows_are_trained_as_a_plain_loop_trains_them(case, tmp_path, data):
    """The oracle: the same rows in memory, and plain PyTorch."""
    fill, parameters = SMALL["large_table"]
    made = case("large_table", fill, **parameters)
    heard = ScriptedSupervisor()
    attempt(made, tmp_path / "run", heard)
    table = torch.tensor([list(row.values()) for row in rows_of(data)], dtype=torch.float32)
    held_out = len(table) - round(len(table) * 0.3)

    def shuffled(seed, number):
        order = ParquetRows(data).order(seed, number)
        return order[order < held_out]

    torch.manual_seed(7)
    model = Scaled(table[shuffled(7, 0)], 3)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    for number in range(2):
        for batch in shuffled(seed_of("7/train"), number).split(5):
            loss = model(table[batch]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    found = [point["train_loss"] for point in heard.curve.values() if "train_loss" in point]
    assert found == losses
    saved = torch.load(heard.checkpoints[-1].path / "model.pt", weights_only=True)  # noqa: TID251
    assert all(torch.equal(saved[name], each) for name, each in model.state_dict().items())


def rows_of(root):
    rows = ParquetRows(root)
    return [rows[n] for n in range(len(rows))]


def failure(made, root, **changes):
    outcome = attempt(made, root, ScriptedSupervisor(), **changes)
    assert isinstance(outcome, Failed), outcome
    return outcome.error


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"target": "z"}, "has no column z; allowed: a, b, y"),
        ({"features": ["c"]}, "has no column c; allowed: a, b, y"),
        ({"features": ["y"]}, "parameters.features: got no other column"),
    ],
)
def test_wrong_columns_are_named(case, tmp_path, parameters, problem):
    fill, right = SMALL["large_table"]
    made = case("large_table", fill, **right | parameters)
    assert problem in str(failure(made, tmp_path / "run"))


def test_columns_of_text_and_missing_values_are_named(case, tmp_path, data):
    made = case("large_table", making.parquet, target="number")
    assert "got name (string); allowed: columns of numbers" in str(failure(made, tmp_path / "run"))


def test_a_missing_value_is_named(case, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    def fill(root):
        table = pa.table({"a": [1.0, 2.0, None, 4.0], "y": [1.0, 2.0, 3.0, 4.0]})
        pq.write_table(table, root / "t.parquet")

    made = case("large_table", fill, target="y")
    assert "a is missing in row 2" in str(failure(made, tmp_path / "run"))


def damaged_folders(root):
    making.image_folders(root)
    for n in (3, 4, 8):
        path = root / f"class {n % 3}" / f"{n:03d}.png"
        path.write_bytes(path.read_bytes()[:40])


@pytest.mark.slow
def test_images_that_cannot_be_decoded_are_skipped_where_asked(case, tmp_path):
    _, parameters = SMALL["image_folders"]
    made = case("image_folders", damaged_folders, **parameters, skip_undecodable=True)
    whole, first, second = ScriptedSupervisor(), ScriptedSupervisor(at=2), ScriptedSupervisor()
    assert isinstance(attempt(made, tmp_path / "whole", whole), Succeeded)
    names = ("train_undecodable", "val_undecodable")
    last = {name: each[name] for each in whole.curve.values() for name in names if name in each}
    assert sum(last.values()) == 2 * 3  # each in both passes
    attempt(made, tmp_path / "parts", first, every_steps=1)
    let_savings_land()
    attempt(made, tmp_path / "parts", second, resume=first.checkpoints[-1:], number=2)
    require_same_end(whole, [first, second])
    without = made.config["parameters"] | {"skip_undecodable": False}
    error = str(failure(made, tmp_path / "failing", parameters=without))
    assert ".png" in error and "cannot be loaded" in error


def test_data_that_changes_between_two_attempts_is_not_trained_on(case, tmp_path, data):
    fill, parameters = SMALL["image_folders"]
    made = case("image_folders", fill, **parameters)
    first = ScriptedSupervisor(at=2, directive=Directive.PREEMPT)
    attempt(made, tmp_path / "run", first)
    making.save_image(data / "class 1" / "004.png", 99)
    error = failure(made, tmp_path / "run", resume=first.checkpoints, number=2)
    assert "class 1/004.png" in str(error) and "is not the directory that was registered" in str(
        error
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "table"])
def test_the_examples_learn_from_the_data_that_the_examples_make(data, register, tmp_path, name):
    if name == "digits":
        directories.digits(data)
    else:
        directories.table(data, num_files=1)
    file = {"digits": "image_folders.yaml", "table": "large_table.yaml"}[name]
    config = submission.read(ROOT / "examples" / file).body["config"]
    config["parameters"]["epochs"] = 3
    made = DirectoryCase("loop", name, config, ())
    object.__setattr__(made, "location", register(data))
    outcome = attempt(made, tmp_path / "run", ScriptedSupervisor())
    assert isinstance(outcome, Succeeded)
    final = outcome.result["final"]
    assert final["val_accuracy"] > 0.9 if name == "digits" else final["val_loss"] < 0.3


class TextCase(Case):
    """A case whose dataset is an uploaded table with a column of text."""

    def inputs(self, root):
        import pyarrow as pa
        import pyarrow.parquet as pq

        lines = ["some text " * 9, None, "and another one, é " * 5]
        path = root.parent / "text.parquet"
        pq.write_table(pa.table({"text": lines, "number": [1, 2, 3]}), path)
        return {DATASET: path}


def text_case(**parameters):
    _, small = SMALL["characters"]
    config = {"recipe": "characters", "parameters": {"dataset": DATASET, **small, **parameters}}
    return TextCase("loop", "characters", {**config, "threads": 1, "log_every_steps": 1}, ())


@pytest.mark.slow
def test_characters_of_an_uploaded_text_are_learned_and_continue_exactly(tmp_path):
    made = text_case()
    whole, first, second = ScriptedSupervisor(), ScriptedSupervisor(at=3), ScriptedSupervisor()
    assert isinstance(attempt(made, tmp_path / "whole", whole), Succeeded)
    attempt(made, tmp_path / "parts", first, every_steps=1)
    let_savings_land()
    attempt(made, tmp_path / "parts", second, resume=first.checkpoints[-1:], number=2)
    require_same_end(whole, [first, second])


def test_the_rows_of_an_uploaded_text_are_its_lines(tmp_path):
    (table,) = TextCase("loop", "characters", {}, ()).inputs(tmp_path / "x").values()
    text = bytes(characters_module._text_of_rows(table, "text").tolist()).decode()
    assert text == "some text " * 9 + "\n\n" + "and another one, é " * 5 + "\n"


def test_an_uploaded_text_that_is_too_short_is_named(tmp_path):
    outcome = attempt(text_case(length=400), tmp_path / "x", ScriptedSupervisor())
    assert isinstance(outcome, Failed)
    assert "parameters.dataset: the text has" in str(outcome.error)


@pytest.mark.parametrize("given", [{}, {"dataset": DATASET, "directory": DATASET}])
def test_characters_need_a_dataset_or_a_directory(given):
    with pytest.raises(ConfigError) as error:
        KINDS["loop"].parse_config({"recipe": "characters", "parameters": given})
    assert "allowed: either a dataset or a directory" in error.value.errors["parameters.dataset"]


@pytest.mark.parametrize(
    ("types", "problem"),
    [
        ({"text": "text"}, {}),
        ({"text": "category", "x": "number"}, {}),
        ({"text": "number", "said": "text"}, {"column": "got 'text'; allowed: said"}),
        ({"image": "image"}, {"column": "got 'text'; allowed: a dataset with text"}),
    ],
)
def test_the_column_of_an_uploaded_text_is_checked_at_the_submission(types, problem):
    columns = {DATASET: [{"name": name, "type": kind} for name, kind in types.items()]}
    config = KINDS["loop"].parse_config(text_case().config)
    found = config.check_columns(columns)
    assert {
        key: found[f"parameters.{key}"][: len(text)] for key, text in problem.items()
    } == problem
    assert len(found) == len(problem)
