"""What the endpoints that take a form with a file have in common."""

from django.conf import settings
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.datasets.services import too_large
from trainops.http.admission import FORM_BYTES
from trainops.http.numbers import whole_number


class FileFormView(APIView):
    """Takes a form; refuses one that is announced as larger than uploads may be."""

    parser_classes = (MultiPartParser,)

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        """Refuse by the announced size: nothing of a body that is too large is read or stored."""
        allowed = settings.THRESHOLDS.max_upload_bytes
        announced = whole_number(request.META.get("CONTENT_LENGTH") or "", 0, 10**18) or 0
        if announced > allowed + FORM_BYTES:
            raise too_large(allowed)
        super().initial(request, *args, **kwargs)
