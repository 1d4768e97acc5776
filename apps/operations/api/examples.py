"""Examples of requests and responses in the OpenAPI document, recorded from real ones.

Each file in `examples` is named by an operationId and holds `request` (the body, if there is one),
`status` and `response`.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).with_name("examples")
JSON = "application/json"


def add_examples(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """A drf-spectacular postprocessing hook."""
    for methods in result["paths"].values():
        for operation in methods.values():
            _add(operation, _recorded().get(operation["operationId"]))
    return result


@cache
def _recorded() -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text()) for path in DIRECTORY.glob("*.json")}


def _add(operation: dict[str, Any], example: dict[str, Any] | None) -> None:
    if example is None:
        return
    if "request" in example:
        operation["requestBody"]["content"][JSON]["example"] = example["request"]
    response = operation["responses"][str(example["status"])]
    response["content"][JSON]["example"] = example["response"]
