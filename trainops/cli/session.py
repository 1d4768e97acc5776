"""What every command has: a server, a place to write, and one way to fail."""

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property, wraps
from typing import Annotated, Any

import typer

from trainops.cli import server
from trainops.cli.api import Api
from trainops.cli.out import Format, Out
from trainops.cli.problems import ExitCode, Problem
from trainops.cli.server import Server

Url = Annotated[
    str | None, typer.Option("--url", help="The server; else TRAINOPS_URL, else what `up` wrote.")
]
Token = Annotated[
    str | None,
    typer.Option("--token", help="Else TRAINOPS_TOKEN, else what `up` or `login` wrote."),
]
OUTPUT_HELP = "json: the API's data, undecorated, to stdout."
Output = Annotated[Format, typer.Option("--output", "-o", help=OUTPUT_HELP)]
LongOutput = Annotated[Format, typer.Option("--output", help=OUTPUT_HELP)]


class Session:
    """One command's run."""

    def __init__(self, *, url: str | None, token: str | None, output: Format) -> None:
        self.out = Out(output)
        self._wanted = {"url": url, "token": token}
        self._exits = ExitStack()

    @cached_property
    def server(self) -> Server:
        return server.find(**self._wanted)

    @cached_property
    def api(self) -> Api:
        return self._exits.enter_context(Api(self.server))

    def close(self) -> None:
        self._exits.close()


def command(
    app: typer.Typer, name: str, *, panel: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function that takes a Session as its first parameter.

    The options that every command knows are added to its own, and its problems become one line on
    stderr and an exit code.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def invoke(*, url: Url, token: Token, output: Output, **arguments: Any) -> None:
            session = Session(url=url, token=token, output=output)
            try:
                function(session, **arguments)
            except Problem as problem:
                session.out.problem(problem)
                raise typer.Exit(problem.exit_code) from None
            except KeyboardInterrupt:
                raise typer.Exit(ExitCode.INTERRUPTED) from None
            finally:
                session.close()

        invoke.__signature__ = _signature(function)  # type: ignore[attr-defined]
        app.command(name, rich_help_panel=panel)(invoke)
        return function

    return register


def _signature(function: Callable[..., None]) -> inspect.Signature:
    """Return the function's own parameters, without the session, and the shared options.

    A function whose own result is a file may claim -o for it.
    """
    _, *own = inspect.signature(function, eval_str=True).parameters.values()
    output = LongOutput if any(map(_claims_o, own)) else Output
    shared = [("url", Url, None), ("token", Token, None), ("output", output, Format.TABLE)]
    return inspect.Signature(
        [
            *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own),
            *(
                inspect.Parameter(
                    each, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
                )
                for each, annotation, default in shared
            ),
        ]
    )


def _claims_o(parameter: inspect.Parameter) -> bool:
    marks = getattr(parameter.annotation, "__metadata__", ())
    return any("-o" in (getattr(mark, "param_decls", None) or ()) for mark in marks)
