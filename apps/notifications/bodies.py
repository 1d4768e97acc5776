"""The bodies of deliveries, as rows store them and webhooks send them."""

from typing import NotRequired, TypedDict


class NotifiedOperation(TypedDict):
    """The operation that a notification is about."""

    operation_id: str
    name: str
    kind: str
    owner: str
    reason: str
    step: int
    total_steps: int
    page: str  # its address


class DeliveryBody(TypedDict):
    """The body of a delivery.

    That of an event has all fields but the last two, that of a digest only these, and that of a
    test none.
    """

    event: str
    at: NotRequired[str]  # ISO 8601
    actor: NotRequired[str]
    note: NotRequired[str]
    operation: NotRequired[NotifiedOperation]
    counts: NotRequired[dict[str, int]]  # of a digest: by event
    notifications: NotRequired["list[DeliveryBody]"]  # of a digest: the latest ones
