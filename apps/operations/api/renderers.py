"""For answers that are files: they write themselves, and only need to be acceptable."""

from collections.abc import Mapping
from typing import Any

from rest_framework.renderers import BaseRenderer


class PlainText(BaseRenderer):
    media_type = "text/plain"
    format = "txt"

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        return str(data).encode()


class Bytes(PlainText):
    media_type = "application/octet-stream"
    format = "bin"


class Png(PlainText):
    media_type = "image/png"
    format = "png"


class Wav(PlainText):
    media_type = "audio/wav"
    format = "wav"


class Csv(PlainText):
    media_type = "text/csv"
    format = "csv"
