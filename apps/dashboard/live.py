"""Responses that pages follow: the gateway sends them again when what they show has changed.

One rendering serves all readers to whom a page looks the same, so it must not know more of a reader
than what is compared here: see `trainops.gateway.live`.
"""

from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils import timezone

from apps.operations.models import Operation
from apps.operations.requests.access import Person
from trainops.gateway.live import FOLLOWED, Followed
from trainops.http.credentials import of_session
from trainops.http.roles import remember_role, role_of

NOBODY = 0  # the key of no user; None would be that of the owners who were deleted


def reader_of(owner_id: int | None, user: Person) -> Person:
    """Return a person of the same role who is this owner, or of nothing but the role."""
    is_owner = owner_id is not None and owner_id == user.pk
    return _person(owner_id if is_owner else NOBODY, user)


def follow(
    request: HttpRequest,
    topic: str,
    reader: Person,
    query: str,
    *,
    is_shared: bool = True,
    page: object = None,
) -> None:
    """Let the response be followed.

    reader: for whom it was rendered.
    query: asks for what changes after it.
    is_shared: not where it holds a token of the session.
    page: what `operation_updates` needs to answer without the request.
    """
    session = "" if is_shared else of_session(request.META)
    alike = f"{role_of(reader)} {reader.pk} {timezone.get_current_timezone_name()} {session}"
    request.META[FOLLOWED] = Followed(topic, alike, query, page)


def list_reader(user: Person) -> Person:
    """Return whom lists are rendered for: people without operations see the same."""
    is_owner = Operation.objects.filter(owner_id=user.pk).exists()
    return _person(user.pk if is_owner else NOBODY, user)


def _person(key: int | None, user: Person) -> Person:
    """Return a person of whom nothing is known but a key and the role of `user`."""
    person = User(pk=key)
    remember_role(person, role_of(user))
    return person
