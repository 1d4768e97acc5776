"""The command line, and an installation."""

from tests.cli.conftest import ana, cli, environment  # noqa: F401
