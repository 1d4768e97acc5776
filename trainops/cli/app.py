"""The command line as a whole."""

import typer

from trainops.cli import catalogue, checkpoints, logs, operations, studies, submitting, tokens


def build() -> typer.Typer:
    """Return the application with every command."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Submit, watch, stop and resume long machine-learning operations.",
        epilog="Exit codes: 0 ok, 1 failed, 2 usage or bad config, 3 not found, 4 conflict.",
    )
    for module in (submitting, operations, logs, studies, checkpoints, catalogue, tokens):
        module.register(app)
    return app
