"""What an ASGI server and the gateway exchange: the scope of a request, and its messages."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Literal, NotRequired, TypeAlias, TypedDict

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]


class Scope(TypedDict):
    """An HTTP request without its body."""

    method: str
    path: str
    raw_path: NotRequired[bytes | None]
    query_string: bytes
    http_version: str
    headers: Headers
    scheme: NotRequired[str]
    server: NotRequired[tuple[str, int | None] | None]
    client: NotRequired[tuple[str, int] | None]


class BodyPart(TypedDict):
    """A part of the body of a request."""

    type: Literal["http.request"]
    body: NotRequired[bytes]
    more_body: NotRequired[bool]


class ClientGone(TypedDict):
    """The client has closed the connection."""

    type: Literal["http.disconnect"]


class ResponseStart(TypedDict):
    """The status and the headers of a response."""

    type: Literal["http.response.start"]
    status: int
    headers: Headers


class ResponsePart(TypedDict):
    """A part of the body of a response."""

    type: Literal["http.response.body"]
    body: bytes
    more_body: bool


Receive: TypeAlias = Callable[[], Awaitable[BodyPart | ClientGone]]
Send: TypeAlias = Callable[[ResponseStart | ResponsePart], Awaitable[None]]
