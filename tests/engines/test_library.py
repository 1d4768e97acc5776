"""The public names of the library."""

import subprocess
import sys

import pytest

from trainops import runtime


@pytest.mark.parametrize("name", runtime.__all__)
def test_each_public_name_is_there(name):
    assert getattr(runtime, name) is not None


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="has no attribute 'walk'"):
        runtime.walk


def test_the_package_loads_no_torch_by_itself():
    script = "import sys, trainops.runtime.config; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False\n"
