"""What takes too long to be tried at every point in each run: a part of it always, all on request.

`python3 -m trainops test --all` tries the rest, too.
"""

import pytest

every_step = pytest.mark.parametrize(
    "stride", [5, pytest.param(1, marks=pytest.mark.exhaustive)], ids=["some", "all"]
)


def some_of(values, *, every):
    """Return parameters: every so many-th as they are, the others marked exhaustive."""
    return [
        each if number % every == 0 else _only_on_request(each)
        for number, each in enumerate(values)
    ]


def _only_on_request(value):
    several = value if isinstance(value, tuple) else (value,)
    return pytest.param(*several, marks=pytest.mark.exhaustive)
