"""ETags of responses that clients request again and again: 304 while the content is the same."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeAlias

from django.http import HttpRequest, HttpResponse
from django.utils.cache import get_conditional_response, set_response_etag
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

HEADER = OpenApiParameter(
    "If-None-Match",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="ETag of an earlier response; 304 if the content is still the same.",
)
Get: TypeAlias = Callable[..., Response]


def with_etag(get: Get) -> Get:
    """Give the responses of a view's `get` an ETag, and answer If-None-Match.

    The content is computed all the same; what a 304 saves is its transfer. Caches store none of
    the responses (`no-store`): clients keep tag and content themselves.
    """

    @wraps(get)
    def conditional(view: Any, request: Request, *args: Any, **kwargs: Any) -> Response:
        response = get(view, request, *args, **kwargs)
        response.add_post_render_callback(partial(_answered, request._request))
        return response

    return extend_schema(parameters=[HEADER])(conditional)


def _answered(request: HttpRequest, response: HttpResponse) -> HttpResponse | None:
    set_response_etag(response)
    return get_conditional_response(request, etag=response["ETag"], response=response)
