"""Arrays of what was given: NumPy arrays, tensors of any device, lists."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainops.media.errors import MediaError

Array = NDArray[Any]


def is_tensor(given: object) -> bool:
    return hasattr(given, "detach") and hasattr(given, "cpu")


def array_of(given: Any, what: str) -> Array:
    """Return a copy or a view with numbers or booleans. Raises MediaError."""
    if is_tensor(given):
        given = given.detach().cpu()
        is_half = str(given.dtype) in ("torch.bfloat16", "torch.float16")
        given = (given.float() if is_half else given).numpy()
    try:
        array = np.asarray(given)
    except ValueError:  # rows of different lengths
        raise MediaError(f"{what}: got {described(given)}; allowed: rows of one length") from None
    if array.dtype.kind not in "biuf":
        allowed = "numbers or booleans, as an array, a tensor or a list"
        raise MediaError(f"{what}: got {described(given)}; allowed: {allowed}")
    return array


def scaled(array: Array, low: float | None, high: float | None, what: str, hint: str = "") -> Array:
    """Return values between low and high as float64 from 0 to 1. Raises MediaError."""
    low = 0.0 if low is None else float(low)
    high = (255.0 if array.dtype.kind in "iu" else 1.0) if high is None else float(high)
    if not (np.isfinite([low, high]).all() and low < high):
        problem = f"got low {low:g} and high {high:g}"
        raise MediaError(f"{what}: {problem}; allowed: finite numbers, low below high")
    numbers = array.astype(np.float64)
    if not np.isfinite(numbers).all():
        count = int((~np.isfinite(numbers)).sum())
        raise MediaError(f"{what}: got {count} values that are not finite; allowed: finite ones")
    if numbers.min() < low or numbers.max() > high:
        problem = f"got values from {numbers.min():g} to {numbers.max():g}"
        raise MediaError(f"{what}: {problem}; allowed: {low:g} to {high:g}{hint}")
    return (numbers - low) / (high - low)


def described(given: object) -> str:
    """Return what something is, in few words, without its content."""
    if (shape := getattr(given, "shape", None)) is not None:
        return f"shape {shaped(shape)} of {getattr(given, 'dtype', type(given).__name__)}"
    if isinstance(given, str | int | float | None):
        return f"{given!r:.60}"
    return f"a {type(given).__name__}"


def shaped(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "()"
