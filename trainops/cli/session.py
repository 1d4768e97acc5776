"""What every command has: a server, a place to write, and one way to fail."""

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property, wraps
from typing import Annotated

import typer

from trainops.cli.out import Out, OutputFormat
from trainops.cli.type_names import WordedCommand
from trainops.client import server
from trainops.client.api import Api
from trainops.client.problems import ExitCode, Problem
from trainops.client.server import ServerAddress

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="Server URL; by default TRAINOPS_URL, else that of the context, else the server "
        "started by `up`.",
    ),
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        help="Server by its name (see `context ls`); by default TRAINOPS_CONTEXT, else the "
        "current one.",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        help="API token; by default that of the context, else TRAINOPS_TOKEN, else the one saved "
        "by `up` or `login`.",
    ),
]
SERVER_ONLY = "This needs the package trainops; here is only trainops-client."
OUTPUT_HELP = "Output format; all but table print the API's data to stdout."
Output = Annotated[OutputFormat, typer.Option("--output", "-o", help=OUTPUT_HELP)]
LongOutput = Annotated[OutputFormat, typer.Option("--output", help=OUTPUT_HELP)]

Fields = Annotated[
    str,
    typer.Option(
        metavar="NAME,NAME", help="Only these fields of the data, such as name,config.epochs."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only ids, one in a line.")]


class Session:
    """One command's run."""

    def __init__(
        self,
        *,
        url: str | None,
        token: str | None,
        output: OutputFormat,
        context: str | None = None,
        fields: str = "",
        quiet: bool = False,
    ) -> None:
        chosen = [each.strip() for each in fields.split(",") if each.strip()]
        self.out = Out(output, fields=chosen, ids_only=quiet)
        self.given_url, self.given_token = url, token
        self._wanted = {"url": url, "token": token, "context": context}
        self._exits = ExitStack()

    @cached_property
    def server(self) -> ServerAddress:
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
        def invoke(
            *,
            url: Url,
            token: Token,
            context: Context,
            output: Output,
            fields: Fields,
            quiet: Quiet,
            **arguments: object,
        ) -> None:
            session = Session(
                url=url, token=token, context=context, output=output, fields=fields, quiet=quiet
            )
            try:
                function(session, **arguments)
            except Problem as problem:
                session.out.problem(problem)
                raise typer.Exit(problem.exit_code) from None
            except ModuleNotFoundError as error:
                if not str(error.name).startswith("trainops"):
                    raise
                session.out.problem(Problem(SERVER_ONLY))
                raise typer.Exit(ExitCode.USAGE) from None
            except KeyboardInterrupt:
                raise typer.Exit(ExitCode.INTERRUPTED) from None
            finally:
                session.close()

        invoke.__signature__ = _signature(function)  # type: ignore[attr-defined]
        app.command(name, cls=WordedCommand, rich_help_panel=panel)(invoke)
        return function

    return register


def _signature(function: Callable[..., None]) -> inspect.Signature:
    """Return the function's own parameters, without the session, and the shared options.

    A function whose own result is a file may claim -o for it.
    """
    _, *own = inspect.signature(function, eval_str=True).parameters.values()
    output = LongOutput if any(map(_claims_o, own)) else Output
    shared = [
        ("url", Url, None),
        ("token", Token, None),
        ("context", Context, None),
        ("output", output, OutputFormat.TABLE),
        ("fields", Fields, ""),
        ("quiet", Quiet, False),
    ]
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
