"""Commands on what there is to work with: recipes, datasets, workers."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer
import yaml

from trainops import operation_yaml
from trainops.cli import datasets, looks
from trainops.cli.groups import group_with_default
from trainops.cli.session import Session, command
from trainops.client.problems import ExitCode, Problem
from trainops.client.responses import JsonSchema, Recipe, Worker
from trainops.paths import COMMAND

if TYPE_CHECKING:
    from trainops.client.api import RowPage

PANEL = "Catalogue"
Bound: TypeAlias = Literal["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"]
WorkerId = Annotated[str, typer.Argument(metavar="WORKER", help="Complete id of a worker.")]
BOUNDS: tuple[tuple[Bound, str], ...] = (
    ("minimum", "≥"),
    ("exclusiveMinimum", ">"),
    ("maximum", "≤"),
    ("exclusiveMaximum", "<"),
)


def register(app: typer.Typer) -> None:
    """Add these commands, in the order of the help."""
    command(app, "upload", panel=PANEL)(upload)
    group = typer.Typer(
        cls=group_with_default("ls"),
        help="List workers (default), drain one.\n\nExample: trainops workers drain WORKER",
    )
    for name, function in (("ls", workers), ("drain", drain), ("undrain", undrain)):
        command(group, name)(function)
    app.add_typer(group, name="workers", rich_help_panel=PANEL)


def recipes(
    session: Session,
    name: Annotated[
        str | None, typer.Argument(show_default=False, help="Name of a recipe.")
    ] = None,
    example: Annotated[
        bool, typer.Option("--example", help="Print only an example file: > my.yaml")
    ] = False,
) -> None:
    """List the recipes, or show the parameters and an example file of one.

    Example: trainops recipes digits --example > digits.yaml
    """
    found: list[Recipe] = session.api.get("recipes")
    if name is None:
        _list_recipes(session, found)
        return
    recipe = next((each for each in found if each["name"] == name), None)
    if recipe is None:
        names = ", ".join(each["name"] for each in found)
        raise Problem(f"There is no recipe {name!r}; allowed: {names}.", ExitCode.NOT_FOUND)
    if session.out.is_data:
        session.out.data(recipe)
    elif example:
        session.out.text(example_file(recipe), end="")
    else:
        _show_recipe(session, recipe)


def example_file(recipe: Recipe) -> str:
    """Return YAML that `run` takes."""
    return operation_yaml.written(recipe["kind"], recipe["label"], recipe["example"])


def _list_recipes(session: Session, found: list[Recipe]) -> None:
    if session.out.is_data:
        session.out.data(found)
        return
    session.out.table(
        ["RECIPE", "KIND", "DESCRIPTION"],
        (
            [looks.cell(each["name"]), looks.cell(each["kind"]), looks.words(each["description"])]
            for each in found
        ),
        elastic="DESCRIPTION",
    )


def _show_recipe(session: Session, recipe: Recipe) -> None:
    out = session.out
    out.text(f"{recipe['name']}: {recipe['description']}\n")
    schema = recipe["json_schema"]
    required = schema.get("required", [])
    out.table(
        ["PARAMETER", "TYPE", "DEFAULT", "DESCRIPTION"],
        (
            [
                looks.cell(name),
                looks.cell(allowed(field)),
                looks.cell("required" if name in required else _default(field)),
                looks.words(field.get("description")),
            ]
            for name, field in schema.get("properties", {}).items()
        ),
        elastic="DESCRIPTION",
    )
    out.text("\nExample file:\n")
    out.text(example_file(recipe), end="")
    out.note(f"\nSave and submit it: {COMMAND} recipes {recipe['name']} --example > my.yaml")
    out.note(f"                    {COMMAND} run my.yaml --follow")


def allowed(field: JsonSchema) -> str:
    """Return what a field of a JSON Schema takes, e.g. "integer, 1 to 256" or "sgd | adam"."""
    if "enum" in field:
        return " | ".join(map(str, field["enum"]))
    if "anyOf" in field:
        return " or ".join(allowed(each) for each in field["anyOf"])
    if field.get("type") == "array":
        return f"list of {allowed(field.get('items', {}))}"
    text = str(field.get("format") or field.get("type") or "anything")
    bounds = [f"{sign} {field[key]:g}" for key, sign in BOUNDS if key in field]
    return " ".join([text, *bounds]).replace("null", "nothing")


def _default(field: JsonSchema) -> str:
    value = field.get("default")
    if value is None:
        return looks.DASH
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip()


def upload(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    name: Annotated[str, typer.Option(help="Display name; by default the file's name.")] = "",
    is_text: datasets.IsText = False,
) -> None:
    """Upload a table (CSV, Parquet), images (NPZ) or text, and print the dataset's id.

    An upload that was interrupted continues.

    Example: trainops upload prices.csv --name 'Prices of 2026'
    """
    datasets.add_file(session, file, name, is_text=is_text)


def workers(session: Session) -> None:
    """List the workers and their operations.

    Example: trainops workers
    """
    page: RowPage[Worker] = session.api.rows("workers")
    if session.out.is_data:
        session.out.data(page.rows)
        return
    if not page.rows:
        session.out.note("No worker is registered; operations wait until one registers.")
        return
    session.out.table(
        ["WORKER", "STATUS", "SLOTS", "RUNNING", "KINDS", "LABELS", "ENDS", "HEARTBEAT"],
        (
            [
                looks.cell(row["worker_id"]),
                looks.state(row["status"]),
                looks.cell(row["slots"]),
                looks.cell(row["num_running"]),
                looks.cell(", ".join(row["kinds"])),
                looks.cell(", ".join(row.get("labels") or [])),
                looks.cell(_end(row)),
                looks.cell(looks.ago(row["heartbeat_at"])),
            ]
            for row in page.rows
        ),
    )
    for row in page.rows:
        for name, problem in _storage_problems(row):
            session.out.note(f"{looks.plain(row['worker_id'])}: {name}: {looks.plain(problem)}")


def _storage_problems(worker: Worker) -> Iterator[tuple[str, str]]:
    if problem := worker.get("storage_problem"):
        yield "checkpoint storage unavailable", problem
    if problem := worker.get("dataset_problem"):
        yield "dataset storage unavailable", problem


def _end(worker: Worker) -> str:
    """Return when a worker ends by itself."""
    ends_at, seconds = worker.get("ends_at"), worker.get("idle_exit_seconds")
    parts = [looks.at(ends_at)] if ends_at else []
    parts += [f"idle {looks.duration(seconds)}"] if seconds is not None else []
    return ", ".join(parts) or looks.DASH


def drain(session: Session, worker: WorkerId) -> None:
    """Accept no more operations on a worker; running ones continue.

    Example: trainops workers drain WORKER
    """
    _ask(session, worker, "drain")


def undrain(session: Session, worker: WorkerId) -> None:
    """Accept operations on a worker again.

    Example: trainops workers undrain WORKER
    """
    _ask(session, worker, "undrain")


def _ask(session: Session, worker: str, verb: str) -> None:
    answer: Worker = session.api.post(f"workers/{worker}/{verb}")
    if session.out.is_data:
        session.out.data(answer)
    else:
        session.out.text(f"{looks.plain(worker)}: {looks.plain(answer['status'])}")
