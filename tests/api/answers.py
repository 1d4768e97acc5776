"""What the API answered: its data, or its error, with the envelope checked on the way."""

from typing import Any


def error(response: Any, status: int, code: str) -> dict[str, Any]:
    body = response.json()
    assert (response.status_code, body["success"]) == (status, False), body
    assert body["error"]["code"] == code, body
    assert body["error"]["message"]
    problem: dict[str, Any] = body["error"]
    return problem


def data(response: Any, status: int = 200) -> Any:
    assert response.status_code == status, response.content
    body = response.json()
    assert body["success"] is True
    return body["data"]
