"""The points at which a storm kills processes are in the code."""

from importlib import import_module
from operator import attrgetter

import pytest

from tests.faults.inside.sitecustomize import POINTS


@pytest.mark.parametrize("module", POINTS)
def test_each_point_is_a_function(module):
    for name in POINTS[module]:
        assert callable(attrgetter(name)(import_module(module))), name
