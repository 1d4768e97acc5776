"""The option --preview of commands that start an operation from a checkpoint."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from trainops.cli import looks
from trainops.cli.session import Session

if TYPE_CHECKING:
    from trainops.client.responses import Preview

IsPreview = Annotated[
    bool, typer.Option("--preview", help="Say what would happen; submit nothing.")
]


def show(session: Session, found: str, verb: str, wanted: Mapping[str, object]) -> None:
    """Print what the request would do with this operation."""
    body = {"verb": verb.replace("-", "_"), **wanted}
    preview: Preview = session.api.post(f"operations/{found}/preview", body)
    if session.out.is_data:
        session.out.data(preview)
        return
    for note in preview["notes"]:
        session.out.text(looks.plain(note))
    for change in preview["changes"]:
        line = f"{change['field']}: {change['before']} → {change['after']}"
        session.out.text(f"  {looks.plain(line)}")
