"""What is compressed on the way to the browser, and what keeps its length."""

import gzip
import io

import pytest
from django.http import FileResponse, HttpResponse, StreamingHttpResponse

from trainops.http.compression import COMPRESSIBLE, CompressionMiddleware

TEXT = b"epoch,loss\n" * 100
STYLES = "/static/vendor/tabler-1.6.1/tabler.min.css"


def answered(rf, response, *, method="get", **headers):
    request = getattr(rf, method)("/", headers={"accept-encoding": "gzip", **headers})
    return CompressionMiddleware(lambda _: response)(request)


@pytest.mark.parametrize("media_type", sorted(COMPRESSIBLE))
def test_text_is_compressed(rf, media_type):
    response = answered(rf, HttpResponse(TEXT, content_type=f"{media_type}; charset=utf-8"))
    assert response["Content-Encoding"] == "gzip"
    assert response["Vary"] == "Accept-Encoding"
    assert gzip.decompress(response.content) == TEXT
    assert int(response["Content-Length"]) == len(response.content) < len(TEXT)


def test_a_stream_is_compressed_and_has_no_length(rf):
    streaming = StreamingHttpResponse([TEXT, TEXT], content_type="text/html")
    response = answered(rf, streaming)
    assert gzip.decompress(b"".join(response)) == 2 * TEXT
    assert not response.has_header("Content-Length")


def untouched(**options):
    return HttpResponse(TEXT, **{"content_type": "text/plain"} | options)


@pytest.mark.parametrize(
    "response",
    [
        untouched(content_type="application/octet-stream"),
        untouched(content_type="font/woff2"),
        untouched(headers={"Content-Disposition": 'attachment; filename="a.log"'}),
        untouched(status=206, headers={"Content-Range": "bytes 0-9/100"}),
        untouched(headers={"Content-Encoding": "identity"}),
        FileResponse(io.BytesIO(TEXT), as_attachment=True, filename="a.json"),
    ],
    ids=["bytes", "font", "download", "range", "encoded", "file"],
)
def test_what_is_sent_as_it_is(rf, response):
    encoding = response.get("Content-Encoding")
    assert answered(rf, response).get("Content-Encoding") == encoding
    assert b"".join(response) == TEXT


def test_the_length_of_a_page_varies_and_that_of_a_static_file_does_not(rf):
    def lengths(path):
        request = rf.get(path, headers={"accept-encoding": "gzip"})
        answers = [CompressionMiddleware(lambda _: untouched())(request) for _ in range(30)]
        return {len(answer.content) for answer in answers}

    assert len(lengths("/")) > 1
    assert len(lengths("/static/js/page.js")) == 1


def test_a_client_that_takes_no_gzip_gets_none(rf):
    response = answered(rf, untouched(), **{"accept-encoding": "identity"})
    assert response.content == TEXT
    assert response["Vary"] == "Accept-Encoding"


def test_a_head_request_tells_the_length_of_the_whole(rf):
    response = answered(rf, untouched(headers={"Content-Length": "1100"}), method="head")
    assert response["Content-Length"] == "1100"
    assert not response.has_header("Content-Encoding")


def test_vendored_files_are_kept_for_years_and_ours_are_asked_for_again(client, db):
    vendored = client.get(STYLES, headers={"accept-encoding": "gzip"})
    assert vendored["Cache-Control"] == "max-age=315360000, public, immutable"
    assert vendored["Content-Encoding"] == "gzip"
    assert len(b"".join(vendored)) < 100_000
    vendored.close()
    ours = client.get("/static/js/page.js", headers={"accept-encoding": "gzip"})
    assert "immutable" not in ours["Cache-Control"]
    tag = ours["ETag"]
    ours.close()
    again = {"accept-encoding": "gzip", "if-none-match": tag}
    assert client.get("/static/js/page.js", headers=again).status_code == 304
