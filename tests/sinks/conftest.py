"""A worker's runtime, the command line, and an installation with both sinks."""

import pytest
from django.apps import apps

from apps.operations import outbox
from tests.cli.conftest import ana, cli, environment  # noqa: F401
from tests.operations.conftest import forkserver, runtime  # noqa: F401


@pytest.fixture
def directory(settings, tmp_path):
    """The directory of the sinks; events are delivered to them."""
    settings.SINKS, settings.SINKS_DIR = ("tensorboard", "mlflow"), tmp_path
    apps.get_app_config("sinks").ready()
    yield tmp_path
    outbox._subscribers.pop("sinks")
