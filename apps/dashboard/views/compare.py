"""The page that compares operations, what keeps it live, and the choice of others for one."""

import hashlib
from collections.abc import Mapping
from urllib.parse import urlencode

from django.core.cache import cache
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http import StreamingHttpResponse as Streaming
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from apps.dashboard import compared_curves, comparing
from apps.dashboard.live import follow, reader_of
from apps.dashboard.permissions import SubjectNotFound, needs
from apps.dashboard.responses import refused
from apps.dashboard.rows import digest
from apps.operations import versions
from apps.operations.comparisons import selection
from apps.operations.comparisons import services as comparisons
from apps.operations.comparisons.selection import Selected
from apps.operations.comparisons.services import ComparedOperations
from apps.operations.errors import OperationNotFound
from apps.operations.models import Operation
from apps.operations.points import points_csv
from apps.operations.requests import services
from trainops.errors import DomainError

VALUES_SECONDS = 60  # that computed values are kept for other readers of the same
NUM_OFFERED = 20  # operations to choose from
OFFERED = ("name", "state", "stop_requested", "recipe", "study_id", "created_at")
PARTS = ("summary", "operations")  # of the page, that change while operations run


@needs()
def compare(request: HttpRequest) -> HttpResponse:
    """Compare `ids` (separated by commas, or repeated) with one as the `baseline`.

    A single id leads to a list of others that it can be compared with. Deleted operations are
    named as such while two others are left.
    """
    ids, baseline = _selected(request)
    try:
        if len(ids) == 1:
            return _choice(request, services.get(ids[0]))
        selection.require(ids, baseline)
        version = _version(ids)  # before what it is a version of
        selected = selection.remaining(ids, baseline, at_least=selection.MIN_OPERATIONS)
    except DomainError as refusal:
        return refused(request, refusal)
    comparison = comparisons.compare_selected(selected)
    context = {
        "columns": comparing.columns(comparison, ids),
        "parts": comparing.part_tables(comparison),
        "values": comparing.value_rows(comparison),
        "num_active": comparing.num_active(comparison),
        "left_out": comparison["left_out"],
        "drawn": {
            name: {"html": html, "digest": digest(html)}
            for name, html in _drawn(comparison, ids, baseline).items()
        },
        "relations": comparing.relations(comparison),
        "importance": reverse("api-operations-importance"),
        "query": _query(ids, baseline),
        "version": version,
    }
    return render(request, "dashboard/compare/page.html", context)


@needs()
def live(request: HttpRequest) -> HttpResponse:
    """Return the parts whose digest is another, and the points after those that the page has."""
    ids, baseline = _selected(request)
    try:
        found = comparisons.described(selection.remaining(ids, baseline))
    except OperationNotFound as refusal:
        raise SubjectNotFound(str(refusal)) from None
    except DomainError as refusal:
        return refused(request, refusal)
    given = request.GET.get("have", "").split(",")
    have = dict(part.split(":", 1) for part in given if ":" in part)
    digests = {name: (digest(html), html) for name, html in _drawn(found, ids, baseline).items()}
    after = compared_curves.positions(request.GET.get("points", ""))
    operations = compared_curves.of(comparing.legend(found, ids), after)
    shown = {
        "have": ",".join(f"{name}:{known}" for name, (known, _) in digests.items()),
        "points": compared_curves.position_of(operations),
    }
    query = f"{_query(ids, baseline)}&{urlencode(shown)}"
    follow(request, versions.topic_of_several(ids), reader_of(None, request.user), query)
    return JsonResponse(
        {
            "parts": {
                name: {"html": html, "digest": known}
                for name, (known, html) in digests.items()
                if have.get(name) != known
            },
            "operations": operations,
            "settled": not comparing.num_active(found),
        }
    )


@needs()
def values(request: HttpRequest) -> HttpResponse:
    """Return the table of values, and what the charts of fields and values draw.

    Nothing but the version where that is the one which the page `have`s.
    """
    ids, baseline = _selected(request)
    try:
        selection.require(ids, baseline)
        version = _version(ids)  # before what it is a version of
        if request.GET.get("have") == version:
            return JsonResponse({"version": version})
        key = f"compare-values-{_hashed(ids, baseline)}"
        answer = cache.get(key)
        if answer is None or answer["version"] != version:
            answer = _values(selection.remaining(ids, baseline), ids) | {"version": version}
            cache.set(key, answer, VALUES_SECONDS)
    except OperationNotFound as refusal:
        raise SubjectNotFound(str(refusal)) from None
    except DomainError as refusal:
        return refused(request, refusal)
    return JsonResponse(answer)


def _version(ids: list[str]) -> str:
    """Return what differs after a change of what `values` returns."""
    return _hashed(ids, versions.of_points(ids))


def _hashed(*given: object) -> str:
    return hashlib.blake2b(repr(given).encode(), digest_size=16).hexdigest()


def _values(selected: Selected, ids: list[str]) -> dict[str, object]:
    comparison = comparisons.compare_selected(selected)
    context = {
        "columns": comparing.columns(comparison, ids),
        "values": comparing.value_rows(comparison),
        "left_out": comparison["left_out"],
    }
    html = render_to_string("dashboard/compare/values.html", context)
    return {"html": html, "relations": comparing.relations(comparison)}


@needs()
def window(request: HttpRequest) -> HttpResponse:
    """Return the points of some metrics in a window of each operation, for zoomed charts."""
    query = compared_curves.WindowsQuery(data=request.GET.dict())
    if not query.is_valid():
        return JsonResponse({"errors": query.errors}, status=400)
    selected = query.validated_data["windows"]
    try:
        selection.fetch(list(selected))
    except DomainError as refusal:
        return refused(request, refusal)
    found = compared_curves.windows(selected, query.validated_data["name"])
    return JsonResponse({"operations": found})


@needs()
def points_file(request: HttpRequest) -> HttpResponseBase:
    """All points of some metrics of operations as CSV."""
    query = compared_curves.PointsFileQuery(data=request.GET.dict())
    if not query.is_valid():
        return JsonResponse({"errors": query.errors}, status=400)
    ids, names = query.validated_data["ids"], query.validated_data.get("name", ())
    try:
        selection.fetch(ids)
    except DomainError as refusal:
        return refused(request, refusal)
    text = points_csv.pages_of_several(ids, names)
    answer = Streaming(text, content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="compared-points.csv"'
    return answer


def _selected(request: HttpRequest) -> tuple[list[str], str]:
    """Return the ids and the baseline that the address names."""
    ids = selection.parsed(",".join(request.GET.getlist("ids")))
    return ids, request.GET.get("baseline", "")


def _query(ids: list[str], baseline: str) -> str:
    chosen = {"baseline": baseline} if baseline else {}
    return urlencode({"ids": ",".join(ids), **chosen})


def _drawn(found: ComparedOperations, ids: list[str], baseline: str) -> Mapping[str, SafeString]:
    columns = {each.operation["operation_id"]: each for each in comparing.columns(found, ids)}
    is_other = found["baseline"] != (baseline or ids[0])
    context = {
        "new_baseline": columns[found["baseline"]].operation["name"] if is_other else "",
        "rows": [(each, columns.get(each)) for each in ids],
        "deleted": [each for each in ids if each not in columns],
        "num_active": comparing.num_active(found),
    }
    return {name: render_to_string(f"dashboard/compare/{name}.html", context) for name in PARTS}


def _choice(request: HttpRequest, operation: Operation) -> HttpResponse:
    """Offer the newest operations of its kind; those of its study and its recipe come first."""
    others = Operation.objects.listed().filter(kind=operation.kind).exclude(pk=operation.pk)
    newest = others.only(*OFFERED).order_by("-created_at", "-pk")[:NUM_OFFERED]
    context = {
        "operation": operation,
        "others": sorted(newest, key=lambda each: _distance(operation, each)),
        "num_more": selection.MAX_OPERATIONS - 1,
    }
    return render(request, "dashboard/compare/choice.html", context)


def _distance(operation: Operation, other: Operation) -> tuple[bool, bool]:
    is_of_study = operation.study_id is not None and operation.study_id == other.study_id
    return not is_of_study, operation.recipe != other.recipe
