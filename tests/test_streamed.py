from types import GeneratorType

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.test import Client
from django.urls import path


def words(request):
    return StreamingHttpResponse(iter([b"one ", b"two"]))


urlpatterns = [path("words", words)]


def test_the_end_of_a_streamed_response_closes_it_once_and_no_running_generator(
    settings, monkeypatch
):
    settings.ROOT_URLCONF = __name__
    close, running = HttpResponseBase.close, []

    def recorded(response):
        owners = [closer.__self__ for closer in response._resource_closers]
        running.append([each for each in owners if getattr(each, "gi_running", False)])
        close(response)

    monkeypatch.setattr(HttpResponseBase, "close", recorded)
    response = Client().get("/words")
    assert not isinstance(response._iterator, GeneratorType)
    assert b"".join(response) == b"one two"
    assert response.closed and list(response) == []
    assert running == [[]]
