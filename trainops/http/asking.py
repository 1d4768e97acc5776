"""How every view reads what it was asked: strictly, with each wrong field named."""

from typing import Any, cast

from django.contrib.auth.models import User
from rest_framework.request import Request
from rest_framework.serializers import Serializer

from trainops.http.pagination import COUNT, CURSOR, LIMIT, ORDERING
from trainops.http.serializers import StrictSerializer

PAGING = (CURSOR, LIMIT, ORDERING, COUNT)


class NothingSerializer(StrictSerializer):
    """For requests that need no body: an empty one is fine, any field is a mistake."""


def query_of(
    request: Request, query: type[Serializer[Any]] = NothingSerializer, *, is_paged: bool = False
) -> dict[str, Any]:
    """Return the validated parameters of the address; a repeated one counts as a list.

    Those that the paginator reads (and validates) are left to it where the list is paged.
    """
    left = PAGING if is_paged else ()
    given = {
        name: ",".join(values) for name, values in request.query_params.lists() if name not in left
    }
    serializer = query(data=given)
    serializer.is_valid(raise_exception=True)
    return cast(dict[str, Any], serializer.validated_data)


def body_of(request: Request, body: type[Serializer[Any]] = NothingSerializer) -> dict[str, Any]:
    """Return the validated body."""
    serializer = body(data=request.data)
    serializer.is_valid(raise_exception=True)
    return cast(dict[str, Any], serializer.validated_data)


def person(request: Request) -> User:
    """Return who asks. Permission classes have seen to it that somebody does."""
    return cast(User, request.user)
