"""Types of plain values: what JSON can carry, checked with `isinstance` before use."""

from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = dict[str, Json]
Config: TypeAlias = dict[str, object]  # JSON of an operation; its kind validates it
