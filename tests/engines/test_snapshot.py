import math
from enum import IntEnum

import numpy as np
import pytest
import torch
from torch import nn

from trainops.runtime.checkpoint.pages import PAGE_BYTES
from trainops.runtime.checkpoint.snapshot import SafePoint, StatePosition, all_finite, freeze
from trainops.runtime.errors import UnfreezableState


def test_a_frozen_state_does_not_follow_the_training():
    model = nn.Linear(2, 2)
    frozen = freeze({"model": model.state_dict(), "history": (history := [1.0])})
    before = model.weight.detach().clone()
    with torch.no_grad():
        model.weight += 1
    history.append(2.0)
    assert torch.equal(frozen["model"]["weight"], before)
    assert frozen["history"] == [1.0]
    assert not frozen["model"]["weight"].requires_grad


def test_buffers_are_reused_where_they_fit_and_only_there():
    first = freeze({"a": torch.ones(3), "b": torch.ones(2), "c": [torch.ones(1)]})
    buffers = {key: first[key] for key in "ab"} | {"c": first["c"][0]}
    second = freeze({"a": torch.zeros(3), "b": torch.zeros(4), "c": [torch.zeros(1)]}, into=first)
    assert second["a"] is buffers["a"] and second["c"][0] is buffers["c"]
    assert second["b"] is not buffers["b"]
    assert second["a"].tolist() == [0, 0, 0] and second["b"].tolist() == [0, 0, 0, 0]
    other_type = freeze({"a": torch.zeros(3, dtype=torch.int64)}, into=second)
    assert other_type["a"].dtype == torch.int64


@pytest.mark.parametrize("side", [4, 512])
def test_layout_survives(side):
    image = torch.randn(1, 3, side, side).to(memory_format=torch.channels_last)
    every_other = torch.randn(side, 2 * side)[:, ::2]
    frozen = freeze(
        {
            "image": image,
            "row": image[:, :, :1].expand(1, 3, side, side),
            "every_other": every_other,
        }
    )
    assert frozen["image"].stride() == image.stride()
    assert torch.equal(frozen["image"], image) and torch.equal(frozen["every_other"], every_other)
    assert frozen["every_other"].is_contiguous()


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.complex64, torch.int8])
def test_large_tensors_of_any_type_begin_at_a_page_and_take_no_more_than_they_need(dtype):
    large = torch.ones(600_000, dtype=dtype)
    frozen = freeze({"large": large})["large"]
    assert torch.equal(frozen, large)
    assert frozen.data_ptr() % PAGE_BYTES == 0
    assert frozen.untyped_storage().nbytes() == large.nbytes


def test_tied_tensors_do_not_share_a_buffer():
    shared = torch.ones(2)
    frozen = freeze({"a": shared, "b": shared})
    assert frozen["a"] is not frozen["b"]
    assert frozen["a"].data_ptr() != frozen["b"].data_ptr()


class Color(IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": [1, {"b": np.float64(1)}]}, r"state\.a\[1\]\.b is a numpy\.float64"),
        ({"a": np.zeros(2)}, r"state\.a is a numpy\.ndarray"),
        ({"a": Color.RED}, r"state\.a is a .*Color"),
        ({"a": lambda: 1}, r"state\.a is a builtins\.function"),
        ({"a": {1, 2}}, r"state\.a is a builtins\.set"),
        ({"a": {(1, 2): 3}}, r"state\.a has the key \(1, 2\)"),
    ],
)
def test_what_cannot_be_frozen_is_named_with_its_place(value, place):
    with pytest.raises(UnfreezableState, match=place):
        freeze(value)


def test_finiteness():
    assert all_finite({"a": [torch.ones(2), torch.ones(2, dtype=torch.int64)], "b": math.nan})
    assert not all_finite({"a": (torch.tensor([1.0, math.inf]),)})
    assert not all_finite([torch.tensor(math.nan, dtype=torch.bfloat16)])


def test_an_error_while_capturing_leaves_the_earlier_safe_point():
    safe_point = SafePoint(clock=lambda: 0.0, share=0.5)
    safe_point.take(StatePosition(3), lambda: {"a": torch.ones(1)})
    with pytest.raises(ZeroDivisionError):
        safe_point.take(StatePosition(4), lambda: 1 / 0)
    assert (safe_point.place, safe_point.state["a"].item()) == (StatePosition(3), 1.0)


def test_what_cannot_be_frozen_leaves_the_earlier_safe_point():
    safe_point = SafePoint(clock=lambda: 0.0, share=0.5)
    safe_point.take(StatePosition(3), lambda: {"a": torch.ones(1)})
    with pytest.raises(UnfreezableState):
        safe_point.take(StatePosition(4), lambda: {"a": torch.zeros(1), "b": object()})
    assert (safe_point.place, safe_point.state["a"].item()) == (StatePosition(3), 1.0)


def test_an_error_while_overwriting_leaves_none():
    safe_point = SafePoint(clock=lambda: 0.0, share=0.5)
    safe_point.take(StatePosition(3), lambda: {"a": torch.ones(1)})
    with pytest.raises(NotImplementedError):  # there is nothing to copy
        safe_point.take(
            StatePosition(4), lambda: {"a": torch.zeros(1), "b": torch.ones(1, device="meta")}
        )
    assert safe_point.place is None
