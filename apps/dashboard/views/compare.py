"""The page that compares operations, and the choice of others for one of them."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from apps.dashboard import comparing
from apps.dashboard.permissions import needs
from apps.dashboard.responses import refused
from apps.operations.comparisons import selection
from apps.operations.comparisons import services as comparisons
from apps.operations.models import Operation
from apps.operations.requests import services
from trainops.errors import DomainError

NUM_OFFERED = 20  # operations to choose from
OFFERED = ("name", "state", "stop_requested", "recipe", "study_id", "created_at")


@needs()
def compare(request: HttpRequest) -> HttpResponse:
    """Compare `ids` (separated by commas, or repeated) with one as the `baseline`.

    A single id leads to a list of others that it can be compared with.
    """
    ids = selection.parsed(",".join(request.GET.getlist("ids")))
    try:
        if len(ids) == 1:
            return _choice(request, services.get(ids[0]))
        comparison = comparisons.compare(ids, request.GET.get("baseline", ""))
    except DomainError as refusal:
        return refused(request, refusal)
    context = {
        "columns": comparing.columns(comparison),
        "parts": comparing.part_tables(comparison),
        "values": comparing.value_rows(comparison),
        "num_active": comparing.num_active(comparison),
        "left_out": comparison["left_out"],
        "curves": {
            "operations": [each["operation_id"] for each in comparison["operations"]],
            "metrics": comparison["curves"],
        },
        "relations": comparing.relations(comparison),
        "importance": f"{reverse('api-operations-importance')}?ids={','.join(ids)}",
    }
    return render(request, "dashboard/compare/page.html", context)


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
