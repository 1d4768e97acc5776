"""JSON that keeps NaN and the infinities, which JSON itself cannot say.

They are written as {"$float": "nan" | "inf" | "-inf"}. A dict of the caller's that could be
mistaken for that is wrapped as {"$dict": {...}}, so decode(encode(value)) == value for every
value made of dicts with string keys, lists, strings, numbers, booleans and None.
"""

import json
import math
from typing import Any, NoReturn

from trainops.plain import JsonObject

FLOAT, DICT = "$float", "$dict"


def dumps(value: object) -> str:
    """Return compact JSON. Raises TypeError for what JSON cannot hold (tuples included)."""
    return json.dumps(encode(value), allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def loads(text: str | bytes) -> Any:
    """Return what dumps was given. Raises ValueError for anything that dumps does not write."""
    return decode(json.loads(text, parse_constant=_refuse))


def encode(value: object) -> Any:
    """Return the value with its non-finite floats replaced, ready for any JSON writer."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {FLOAT: str(value)}
    if isinstance(value, list):
        return [encode(each) for each in value]
    if isinstance(value, dict):
        return _encode_dict(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON without loss")


def decode(value: Any) -> Any:
    """Undo encode."""
    if isinstance(value, list):
        return [decode(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {FLOAT}:
        return float(value[FLOAT])
    if value.keys() == {DICT}:
        value = value[DICT]
    return {key: decode(each) for key, each in value.items()}


def _encode_dict(value: dict[Any, object]) -> JsonObject:
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"key {key!r} is not a string; JSON would convert it")
    encoded = {key: encode(each) for key, each in value.items()}
    return {DICT: encoded} if value.keys() in ({FLOAT}, {DICT}) else encoded


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
