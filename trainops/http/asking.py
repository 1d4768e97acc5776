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
) -> Any:
    """Return the validated parameters of the address; a repeated one counts as a list.

    Those that the paginator reads (and validates) are left to it where the list is paged. DRF does
    not type validated data: callers name the type.
    """
    left = PAGING if is_paged else ()
    given = {
        name: ",".join(values) for name, values in request.query_params.lists() if name not in left
    }
    serializer = query(data=given)
    serializer.is_valid(raise_exception=True)
    return serializer.validated_data


def body_of(request: Request, body: type[Serializer[Any]] = NothingSerializer) -> Any:
    """Return the validated body, a dict; DRF does not type it, so callers name its type."""
    serializer = body(data=request.data)
    serializer.is_valid(raise_exception=True)
    return serializer.validated_data


def person(request: Request) -> User:
    """Return the user of the request; permission classes require one."""
    return cast(User, request.user)
