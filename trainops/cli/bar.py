"""Progress on a terminal that is drawn anew in its place."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from trainops.cli import looks, tables
from trainops.cli.following import WAITING, pieces_of
from trainops.cli.session import Session
from trainops.client.responses import Operation

BAR_WIDTH = 32


def console() -> Console:
    """Return the terminal of stderr."""
    return Console(file=sys.stderr, highlight=False, markup=False, emoji=False)


class Bar:
    """For a terminal: a bar that moves, with the newest metrics below it."""

    def __init__(self, session: Session) -> None:
        self._live = Live(console=console(), auto_refresh=True, refresh_per_second=8)
        self._spinner = Spinner("dots")

    @contextmanager
    def shown(self) -> Iterator[None]:
        with self._live:
            yield

    def update(self, operation: Operation) -> None:
        if operation["status"] in looks.FINISHED:
            self._live.transient = True  # the bar goes: how it ended is said after that
            return
        self._live.update(self._drawn(operation), refresh=True)

    def lost(self, problem: str) -> None:
        self._live.update(
            Text(f"{looks.plain(problem)} Trying again.", style="yellow"), refresh=True
        )

    def _drawn(self, operation: Operation) -> RenderableType:
        row = Table.grid(padding=(0, 1))
        first, *more = pieces_of(operation)
        if operation["status"] in WAITING:
            first += f" for {looks.duration(looks.age(operation.get('queued_at')))}"
        row.add_row(
            self._spinner,
            _styled(looks.state(operation["status"])),
            ProgressBar(total=100, completed=operation.get("percent") or 0, width=BAR_WIDTH),
            Text(first, no_wrap=True, overflow="ellipsis"),
        )
        more.append(looks.metrics(operation.get("metrics"), at_most=6))
        below = " · ".join(filter(None, more))
        return Group(row, Text(f"  {below}", no_wrap=True, overflow="ellipsis")) if below else row


def _styled(text: tables.Text) -> Text:
    return Text(text.plain, style=text.style)
