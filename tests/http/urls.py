"""Views that fail in every way a view can, behind the real middleware."""

from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.core.exceptions import ValidationError as DjangoValidationError
from django.db import OperationalError
from django.http import Http404, HttpResponse
from django.urls import include, path
from rest_framework.exceptions import Throttled
from rest_framework.permissions import AllowAny
from rest_framework.response import Response
from rest_framework.views import APIView

from trainops.errors import DomainError
from trainops.runtime.errors import ConfigError

ERRORS = {
    "refusal": lambda: DomainError("NOPE", "No.", {"why": "because"}, status=409),
    "later": lambda: DomainError("LATER", "Not now.", status=503, retry_after_seconds=9),
    "config": lambda: ConfigError({"lr": "-1 is not positive", "epochs": "0 is below 1"}),
    "django": lambda: DjangoValidationError({"name": ["too long"]}),
    "missing": lambda: Http404("gone"),
    "denied": lambda: PermissionDenied("not yours"),
    "throttled": lambda: Throttled(wait=7),
    "database": lambda: OperationalError("server closed the connection"),
    "suspicious": lambda: SuspiciousOperation("Unsafe redirect"),
    "bug": lambda: ZeroDivisionError("division by zero"),
}


class FailingView(APIView):
    permission_classes = (AllowAny,)

    def get(self, request, error):
        raise ERRORS[error]()


class EchoView(APIView):
    permission_classes = (AllowAny,)

    def post(self, request):
        return Response(request.data)


class EmptyView(APIView):
    permission_classes = (AllowAny,)

    def get(self, request):
        return Response(status=204)


def away(request):
    raise ERRORS["database"]()


def later(request):
    raise ERRORS["later"]()


def page_of_a_session(request):
    """What the middleware does after the view fails: the session cannot be saved."""
    request.session.save = lambda: away(request)
    request.session["seen"] = True
    return HttpResponse("a page")


def plain(request):
    raise ZeroDivisionError


urlpatterns = [
    path("api/v1/fail/<str:error>", FailingView.as_view()),
    path("api/v1/echo", EchoView.as_view()),
    path("api/v1/empty", EmptyView.as_view()),
    path("api/v1/plain", plain),
    path("page", lambda request: HttpResponse("a page")),
    path("page/bug", plain),
    path("page/database", away),
    path("page/later", later),
    path("page/session", page_of_a_session),
    path("api/", include("trainops.http.urls")),
]
handler400 = "trainops.http.handlers.bad_request"
handler403 = "trainops.http.handlers.permission_denied"
handler404 = "trainops.http.handlers.not_found"
handler500 = "trainops.http.handlers.server_error"
