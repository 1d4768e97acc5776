"""The examples of docs/client.md, run as they are written."""

import os
import re

import pytest

from tests.cli.conftest import ROOT
from tests.journey.stack import running

PAGE = (ROOT / "docs" / "client.md").read_text()


@pytest.mark.journey
@pytest.mark.slow
def test_the_examples_of_the_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with running(tmp_path / "var"):
        monkeypatch.setenv("TRAINOPS_DATA_DIR", str(tmp_path / "var"))
        for name in [each for each in os.environ if each in ("TRAINOPS_URL", "TRAINOPS_TOKEN")]:
            monkeypatch.delenv(name)
        names: dict[str, object] = {}
        for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
            exec(block, names)  # noqa: S102 - our own page
    assert list((tmp_path / "result").iterdir())
