"""The Content-Security-Policy of every answer: our own files, nothing inline."""

from collections.abc import Callable

from django.http import HttpRequest
from django.http.response import HttpResponseBase

POLICY = {
    "default-src": "'self'",
    "img-src": "'self' data:",  # Tabler's CSS draws its chevrons and ticks from data URIs
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
}
# unfold's admin runs Alpine, which evaluates expressions in attributes.
ADMIN_POLICY = POLICY | {
    "script-src": "'self' 'unsafe-eval'",
    "style-src": "'self' 'unsafe-inline'",
}


class ContentSecurityPolicyMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        policy = ADMIN_POLICY if request.path_info.startswith("/admin/") else POLICY
        header = "; ".join(f"{directive} {sources}" for directive, sources in policy.items())
        response.headers.setdefault("Content-Security-Policy", header)
        response.headers.setdefault("Referrer-Policy", "same-origin")
        response.headers.setdefault("X-Frame-Options", "DENY")
        return response
