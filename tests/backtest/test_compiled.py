"""Where machine code is kept, and that it is not taken for that of other sources."""

import os
from pathlib import Path

import numpy as np
import pytest

from trainops.market import compiled
from trainops.market.indicators.averages import Sma, sma_step

NOWHERE = Path("/proc/nowhere")  # not even root can make it


@pytest.fixture(autouse=True)
def _no_names(monkeypatch):
    for name in ("NUMBA_CACHE_DIR", "TRAINOPS_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_machine_code_lies_beside_the_sources_or_where_it_may(monkeypatch, tmp_path):
    assert compiled._cache_directory().parent.name == "__pycache__"
    monkeypatch.setattr(compiled, "_sources_digest", lambda: "0")
    monkeypatch.setattr(compiled, "HERE", NOWHERE)
    monkeypatch.setenv("TRAINOPS_DATA_DIR", str(tmp_path))
    assert compiled._cache_directory() == tmp_path / "compiled-0"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "named"))
    assert compiled._cache_directory() == tmp_path / "named" / "compiled-0"


def test_where_nothing_may_be_written_it_is_compiled_each_time(monkeypatch):
    monkeypatch.setattr(compiled, "_sources_digest", lambda: "0")
    monkeypatch.setattr(compiled, "HERE", NOWHERE)
    monkeypatch.setattr(Path, "home", lambda: NOWHERE)
    assert compiled._cache_directory() is None


def test_other_sources_get_another_directory(monkeypatch, tmp_path):
    for folder in (each.replace("*", "backtest") for each in compiled.CALLED_INTO):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "one.py").write_text("x = 1")
    monkeypatch.setattr(compiled, "PACKAGE", tmp_path)
    before = compiled._sources_digest()
    (tmp_path / "kinds" / "backtest" / "core" / "one.py").write_text("x = 2")
    assert compiled._sources_digest() != before


def test_settled_code_gives_what_the_function_gives():
    """A step that is bound past numba's search for types is the same step."""
    one, other = Sma(3), Sma(3)
    values = np.random.default_rng(1).random(20)
    assert [one.update(v) for v in values][2:] == [sma_step(other.state, v) for v in values][2:]
    assert one.state.tobytes() == other.state.tobytes()


def test_a_user_without_a_home_has_no_cache_there(monkeypatch):
    """As in a container with a read-only root, run by any user's number."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 9)
    monkeypatch.setattr(compiled, "HERE", NOWHERE)
    assert compiled._cache_directory() is None
