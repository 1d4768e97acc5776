"""Values that stay on a GPU until a point is due."""

import math

import pytest

from trainops.kinds.loop.means import Means
from trainops.runtime.errors import NonFiniteLoss


def test_a_loss_that_is_read_with_a_point_is_of_one_of_its_steps():
    means = Means(every_steps=3)
    means.load_state_dict({"loss": {"total": math.nan, "count": 2, "logged_at": 1}})
    with pytest.raises(NonFiniteLoss, match="the loss became nan in one of the 3 steps up to 4"):
        means.add(4, {"loss": 0.5})


def test_a_loss_that_is_read_at_once_is_of_its_step():
    means = Means(every_steps=3)
    means.add(1, {"loss": 0.5})
    with pytest.raises(NonFiniteLoss, match="the loss became nan in step 2"):
        means.add(2, {"loss": math.nan})
