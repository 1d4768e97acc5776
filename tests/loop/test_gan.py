"""The recipe digits_gan: two networks, exact at every stop, and it learns."""

import pytest

from tests.engines.contract import Case, require_stop_changes_nothing, undisturbed

SMALL = {"epochs": 2, "batch_size": 600, "width": 8, "noise": 4}
GAN = Case("loop", "gan", {"recipe": "digits_gan", "parameters": SMALL, "threads": 1}, ())


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2, 3])
def test_stopped_at_a_step_it_ends_the_same(tmp_path, at):
    expected = undisturbed(GAN, tmp_path / "whole")
    require_stop_changes_nothing(GAN, tmp_path / "stopped", expected, [at])


@pytest.mark.slow
def test_the_mean_of_the_generated_digits_approaches_that_of_the_digits(tmp_path):
    config = {"recipe": "digits_gan", "parameters": {"epochs": 12}, "threads": 1}
    heard = undisturbed(Case("loop", "gan", config, ()), tmp_path)
    distances = [each["val_distance"] for each in heard.curve.values() if "val_distance" in each]
    assert distances[-1] < 0.06 < distances[0]
