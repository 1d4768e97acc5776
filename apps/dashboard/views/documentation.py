"""The documentation inside the product, from the same Markdown as the site."""

from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.safestring import mark_safe

from apps.dashboard.permissions import needs
from trainops.documentation import pages, rendering

MAX_QUERY = 200
MAX_LEVEL = 3  # of headings beside the page


@needs()
def page(request: HttpRequest, address: str = "") -> HttpResponse:
    """One page, or with `q` the sections that match."""
    query = request.GET.get("q", "").strip()[:MAX_QUERY]
    context = {"navigation": pages.navigation(), "query": query}
    if query:
        context |= {"title": "Search", "found": rendering.search(query)}
        return render(request, "dashboard/docs/search.html", context)
    try:
        path = rendering.path_of(address)
    except KeyError as error:
        raise Http404 from error
    document = rendering.document(path)
    context |= {
        "path": path,
        "title": pages.title(path),
        # Rendered from our own files, without raw HTML.
        "html": mark_safe(document.html),  # noqa: S308
        "headings": [each for each in document.headings if each.level <= MAX_LEVEL],
    }
    return render(request, "dashboard/docs/page.html", context)


@needs()
def file(request: HttpRequest, name: str) -> HttpResponseBase:
    """A picture of a page, or the OpenAPI document."""
    if not pages.is_file(name):
        raise Http404
    file_type = "application/yaml" if name.endswith(".yaml") else None  # Python 3.11 knows none
    return FileResponse((pages.SOURCES / "docs" / name).open("rb"), content_type=file_type)
