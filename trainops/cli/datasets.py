"""Commands on datasets: list them, upload a file, register a directory, verify one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainops.cli import looks, uploading
from trainops.cli.session import Session, command
from trainops.cli.type_names import WordedGroup
from trainops.client.problems import ExitCode, Problem
from trainops.paths import COMMAND

if TYPE_CHECKING:
    from trainops.client.api import RowPage
    from trainops.client.responses import (
        Dataset,
        DatasetRow,
        DirectoryDataset,
        DirectoryVerification,
    )

MAX_CLASSES, MAX_COLUMNS = 10, 20
PRICES = {"open", "high", "low", "close"}  # columns of a price series
IsText = Annotated[
    bool, typer.Option("--text", help="Upload text: each line is a row; there is no header.")
]
DatasetName = Annotated[
    str, typer.Argument(metavar="DATASET", help="Dataset id.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add the group `datasets`."""
    group = typer.Typer(
        cls=WordedGroup,
        no_args_is_help=True,
        help="List datasets, upload files, register and verify directories.\n\n"
        "Example: trainops datasets add prices.csv",
    )
    for name, function in (("ls", ls), ("add", add), ("verify", verify)):
        command(group, name)(function)
    app.add_typer(group, name="datasets", rich_help_panel="Catalogue")


def ls(session: Session) -> None:
    """List the datasets, the newest first.

    Example: trainops datasets ls
    """
    page: RowPage[DatasetRow] = session.api.rows("datasets", count="true")
    if session.out.is_data:
        session.out.data(page.rows)
        return
    session.out.table(
        ["DATASET", "NAME", "FORMAT", "ROWS", "OWNER", "ADDED"],
        (
            [
                looks.cell(row["id"]),
                looks.words(row["name"]),
                looks.cell(row["format"]),
                looks.cell(row["num_rows"]),
                looks.cell(row["owner"]),
                looks.cell(looks.ago(row["created_at"])),
            ]
            for row in page.rows
        ),
        elastic="NAME",
    )
    if page.has_more:
        session.out.note(f"{page.total_count} datasets in all; the page Datasets lists them.")


def add(
    session: Session,
    path: Annotated[str, typer.Argument(metavar="PATH", show_default=False)],
    name: Annotated[
        str, typer.Option(help="Display name; by default that of the file or directory.")
    ] = "",
    is_text: IsText = False,
) -> None:
    """Upload a file, or register a directory or s3://BUCKET/PREFIX, and print the dataset's id.

    A file is a table (CSV, Parquet), images (NPZ) or, with --text, text in UTF-8; an upload that
    was interrupted continues.
    A directory must be on the server and all workers: nothing is copied, and all files are read
    once for their digests. The same holds for the objects of a bucket below an allowed prefix.

    Example: trainops datasets add s3://bucket/images --name 'Images of 2026'
    """
    if "://" in path:
        _add_directory(session, path, name)
    elif Path(path).is_file():
        add_file(session, Path(path), name, is_text=is_text)
    else:
        _add_directory(session, str(Path(path).absolute()), name)


def add_file(session: Session, path: Path, name: str, *, is_text: bool = False) -> None:
    """Upload a file; write the dataset's id, its columns, and a command that uses it."""
    dataset = uploading.upload(session, path, name, is_text=is_text)
    if session.out.is_data:
        session.out.data(dataset)
        return
    session.out.text(dataset["id"])
    session.out.note(
        f"{dataset['name']}: {dataset['num_rows']} rows, {dataset['num_columns']} columns"
    )
    for column in dataset["columns"][:MAX_COLUMNS]:
        missing = f", {column['missing']} missing" if column["missing"] else ""
        about = f" ({column['note']})" if "shape" in column else ""
        session.out.note(f"  {column['name']}: {column['type']}{about}{missing}")
    session.out.note(_next_command(dataset))


def _next_command(dataset: "Dataset") -> str:
    names = {column["name"].lower() for column in dataset["columns"]}
    if dataset["format"] == "text":
        settings = f"examples/text.yaml --set parameters.dataset={dataset['id']}"
    elif dataset["format"] == "npz":
        recipe = "segmentation" if "mask" in names else "images"
        settings = f"examples/{recipe}.yaml --set parameters.dataset={dataset['id']}"
    elif names >= PRICES:
        settings = f"examples/backtest.yaml --set dataset={dataset['id']}"
    else:
        of_dataset = f"--set parameters.dataset={dataset['id']}"
        settings = f"examples/tabular.yaml {of_dataset} --set parameters.target=COLUMN"
    return f"To use it: {COMMAND} run {settings}"


def _add_directory(session: Session, path: str, name: str) -> None:
    body = {"path": path, "name": name}
    dataset: DirectoryDataset = session.api.post_and_wait("datasets/directories", body)
    if session.out.is_data:
        session.out.data(dataset)
        return
    layout = dataset["layout"]
    session.out.text(dataset["id"])
    files = f"{layout['num_files']} files, {looks.size(layout['num_bytes'])}"
    session.out.note(f"{dataset['name']}: {layout['title']}, {files}, at {dataset['path']}")
    for each in layout["classes"][:MAX_CLASSES]:
        session.out.note(f"  {each['name']}: {each['count']}")
    if (num_more := len(layout["classes"]) - MAX_CLASSES) > 0:
        session.out.note(f"  and {num_more} more classes")


def verify(
    session: Session,
    dataset_id: DatasetName,
    sample: Annotated[
        int | None,
        typer.Option(help="Number of files whose content is compared; by default all files."),
    ] = None,
    fraction: Annotated[
        float | None, typer.Option(help="Instead: fraction of the files, above 0 and at most 1.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed that draws these files; by default a new one, which is printed."),
    ] = None,
) -> None:
    """Compare a registered directory or prefix with its manifest.

    Names and sizes of all files are compared, and the content of all files or of a sample.

    Example: trainops datasets verify DATASET --sample 100
    """
    given = {"sample": sample, "fraction": fraction, "seed": seed}
    body = {name: value for name, value in given.items() if value is not None}
    found: DirectoryVerification = session.api.post_and_wait(f"datasets/{dataset_id}/verify", body)
    if session.out.is_data:
        session.out.data(found)
    session.out.note(_read(found))
    if not found["is_unchanged"]:
        problems = "; ".join(found["problems"][:MAX_CLASSES])
        raise Problem(f"{dataset_id} differs from what was registered: {problems}", ExitCode.FAILED)
    if not session.out.is_data:
        session.out.text(
            f"{dataset_id} is unchanged{'' if found['seed'] is None else ' in the sample'}."
        )


def _read(found: "DirectoryVerification") -> str:
    files = f"{found['num_files_read']} of {found['num_files']} files"
    num_bytes = f"{looks.size(found['num_bytes_read'])} of {looks.size(found['num_bytes'])}"
    drawn = "" if found["seed"] is None else f", drawn with --seed {found['seed']}"
    return f"Read {files} ({num_bytes}){drawn}. Names and sizes of all files were compared."
