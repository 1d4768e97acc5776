"""Compresses pages, styles, scripts and JSON. Downloads keep their length and their ranges."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware

COMPRESSIBLE = {
    "application/json",
    "application/yaml",
    "application/vnd.oai.openapi",
    "image/svg+xml",
    "text/css",
    "text/html",
    "text/javascript",
    "text/markdown",
    "text/plain",
}


class _OfStaticFiles(GZipMiddleware):
    max_random_bytes = 0  # they hold no secret that a length could tell


class CompressionMiddleware(GZipMiddleware):
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        super().__init__(get_response)
        self._of_static_files = _OfStaticFiles(get_response)

    def process_request(self, request: HttpRequest) -> None:
        """Have WhiteNoise, which compares tags as text, know the weak tag of a compressed file."""
        if (tag := request.META.get("HTTP_IF_NONE_MATCH")) and _is_static(request):
            request.META["HTTP_IF_NONE_MATCH"] = tag.removeprefix("W/")

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        media_type = response.get("Content-Type", "").partition(";")[0].strip().lower()
        is_part = response.status_code == 206 or response.has_header("Content-Range")
        is_download = response.get("Content-Disposition", "").startswith("attachment")
        if media_type not in COMPRESSIBLE or is_part or is_download or request.method == "HEAD":
            return response
        if _is_static(request):
            compressed: HttpResponseBase = self._of_static_files.process_response(request, response)
        else:
            compressed = super().process_response(request, response)
        return compressed


def _is_static(request: HttpRequest) -> bool:
    return request.path_info.startswith(settings.STATIC_URL)
