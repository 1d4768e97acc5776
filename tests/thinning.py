"""What takes too long to be tried at every point in each run: a part of it always, all on request.

`python3 -m trainops test --all` tries the rest, too.
"""

import pytest

every_step = pytest.mark.parametrize(
    "stride", [5, pytest.param(1, marks=pytest.mark.exhaustive)], ids=["some", "all"]
)


def some_of(values, *, every):
    """Return parameters: every Nth as they are, the others marked exhaustive."""
    return _marked(values, every, pytest.mark.exhaustive)


def quick_some(values, *, every):
    """Return parameters: every Nth as they are, the others marked slow."""
    return _marked(values, every, pytest.mark.slow)


def _marked(values, every, mark):
    return [
        each
        if number % every == 0
        else pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=mark)
        for number, each in enumerate(values)
    ]
