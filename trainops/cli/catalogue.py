"""Commands on what there is to work with: recipes, datasets, workers."""

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from trainops.cli import local_files, looks
from trainops.cli.problems import ExitCode, Problem
from trainops.cli.session import Session, command
from trainops.paths import COMMAND

PANEL = "What there is"
PRICES = {"open", "high", "low", "close"}  # columns of a price series


def register(app: typer.Typer) -> None:
    """Add these commands, in the order of the help."""
    for name, function in (("recipes", recipes), ("upload", upload), ("workers", workers)):
        command(app, name, panel=PANEL)(function)


def recipes(
    session: Session,
    name: Annotated[str | None, typer.Argument(show_default=False, help="One of them.")] = None,
    example: Annotated[
        bool, typer.Option("--example", help="Only a file to start from: > my.yaml")
    ] = False,
) -> None:
    """List the recipes, or show one: its parameters and a file to start from."""
    found = session.api.get("recipes")
    if name is None:
        _list_recipes(session, found)
        return
    recipe = next((each for each in found if each["name"] == name), None)
    if recipe is None:
        names = ", ".join(each["name"] for each in found)
        raise Problem(f"There is no recipe {name!r}; there are: {names}.", ExitCode.NOT_FOUND)
    if session.out.is_json:
        session.out.json(recipe)
    elif example:
        session.out.text(example_file(recipe), end="")
    else:
        _show_recipe(session, recipe)


def example_file(recipe: dict[str, Any]) -> str:
    """Return YAML that `run` takes."""
    body = {"kind": recipe["kind"], "name": recipe["label"], "config": recipe["example"]}
    return yaml.safe_dump(body, sort_keys=False, allow_unicode=True)


def _list_recipes(session: Session, found: list[dict[str, Any]]) -> None:
    if session.out.is_json:
        session.out.json(found)
        return
    session.out.table(
        ["RECIPE", "KIND", "WHAT IT IS"],
        (
            [looks.cell(each["name"]), looks.cell(each["kind"]), looks.words(each["description"])]
            for each in found
        ),
        elastic="WHAT IT IS",
    )


def _show_recipe(session: Session, recipe: dict[str, Any]) -> None:
    out = session.out
    out.text(f"{recipe['name']}: {recipe['description']}\n")
    schema = recipe["json_schema"]
    required = schema.get("required", [])
    out.table(
        ["PARAMETER", "TYPE", "DEFAULT", "WHAT IT IS"],
        (
            [
                looks.cell(name),
                looks.cell(allowed(field)),
                looks.cell("required" if name in required else _default(field)),
                looks.words(field.get("description")),
            ]
            for name, field in schema.get("properties", {}).items()
        ),
        elastic="WHAT IT IS",
    )
    out.text("\nA file to start from:\n")
    out.text(example_file(recipe), end="")
    out.note(f"\nSave and submit it: {COMMAND} recipes {recipe['name']} --example > my.yaml")
    out.note(f"                    {COMMAND} run my.yaml --follow")


def allowed(field: dict[str, Any]) -> str:
    """Return what a field of a JSON Schema takes, e.g. "integer, 1 to 256" or "sgd | adam"."""
    if "enum" in field:
        return " | ".join(map(str, field["enum"]))
    if "anyOf" in field:
        return " or ".join(allowed(each) for each in field["anyOf"])
    if field.get("type") == "array":
        return f"list of {allowed(field.get('items', {}))}"
    text = str(field.get("format") or field.get("type") or "anything")
    bounds = [
        f"{sign} {field[key]:g}"
        for key, sign in (
            ("minimum", "≥"),
            ("exclusiveMinimum", ">"),
            ("maximum", "≤"),
            ("exclusiveMaximum", "<"),
        )
        if key in field
    ]
    return " ".join([text, *bounds]).replace("null", "nothing")


def _default(field: dict[str, Any]) -> str:
    value = field.get("default")
    if value is None:
        return looks.DASH
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip()


def upload(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    name: Annotated[str, typer.Option(help="For people; else the file's.")] = "",
) -> None:
    """Upload a table (CSV, Parquet) or images (NPZ) and print the dataset's id."""
    try:
        with local_files.opened(file) as content:
            fields = {"name": name} if name else {}
            dataset = session.api.upload("datasets", content, file.name, fields)
    except OSError as error:
        raise Problem(f"{file}: {error.strerror}", ExitCode.USAGE) from error
    if session.out.is_json:
        session.out.json(dataset)
        return
    session.out.text(dataset["id"])
    session.out.note(
        f"{dataset['name']}: {dataset['num_rows']} rows, {dataset['num_columns']} columns"
    )
    for column in dataset["columns"][:20]:
        missing = f", {column['missing']} missing" if column["missing"] else ""
        about = f" ({column['note']})" if "shape" in column else ""
        session.out.note(f"  {column['name']}: {column['type']}{about}{missing}")
    names = {column["name"].lower() for column in dataset["columns"]}
    if dataset["format"] == "npz":
        recipe = "segmentation" if "mask" in names else "images"
        settings = f"examples/{recipe}.yaml --set parameters.dataset={dataset['id']}"
        what = "Train"
    elif names >= PRICES:
        what, settings = "Backtest", f"examples/backtest.yaml --set dataset={dataset['id']}"
    else:
        settings = f"examples/tabular.yaml --set parameters.dataset={dataset['id']}"
        what, settings = "Train", f"{settings} --set parameters.target=COLUMN"
    session.out.note(f"{what} on it: {COMMAND} run {settings}")


def workers(session: Session) -> None:
    """List the workers and what they are doing."""
    page = session.api.rows("workers")
    if session.out.is_json:
        session.out.json(page.rows)
        return
    if not page.rows:
        session.out.note("No worker has registered; operations wait until one does.")
        return
    session.out.table(
        ["WORKER", "STATUS", "SLOTS", "RUNNING", "KINDS", "LABELS", "HEARTBEAT"],
        (
            [
                looks.cell(row["worker_id"]),
                looks.state(row["status"]),
                looks.cell(row["slots"]),
                looks.cell(row["num_running"]),
                looks.cell(", ".join(row["kinds"])),
                looks.cell(", ".join(row.get("labels") or [])),
                looks.cell(looks.ago(row["heartbeat_at"])),
            ]
            for row in page.rows
        ),
    )
