"""Studies: the list, one with its operations beside each other, and its buttons."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST

from apps.dashboard import compared_curves, comparing, formatting, pages
from apps.dashboard.confirmation import ANY_INEXACT
from apps.dashboard.live import follow, reader_of
from apps.dashboard.permissions import SubjectNotFound, is_fetch, needs, user_of
from apps.dashboard.responses import refuse, say
from apps.operations import versions
from apps.operations.comparisons.selection import MAX_OPERATIONS
from apps.operations.models import Study
from apps.operations.requests import access
from apps.operations.studies import asking, comparison
from apps.operations.studies import services as studies
from apps.operations.studies.designs import MAX_OPERATIONS as MAX_TRIALS
from apps.operations.studies.rows import Trial
from trainops.errors import DomainError
from trainops.http.numbers import whole_number
from trainops.http.roles import Role
from trainops.runtime.errors import ConfigError

PAGE_SIZE = 50
MAX_SECONDS = 10**9
STRENGTHS = 6  # of the heat map's colours, by rank: an extreme value does not hide the others
ASKS = {
    "cancel": "Running operations save a checkpoint at their next safe point, then stop; "
    "waiting ones stop immediately, with the checkpoints they have. You can resume the study "
    "later.",
    "kill": "The operations stop immediately, without saving: the work since their last "
    "checkpoints is lost.",
    "resume": "Failed and cancelled operations continue from their latest healthy "
    "checkpoints, or restart if they have none.",
    "delete": "Permanently deletes the study and all its operations, with their "
    "checkpoints, curves and logs.",
}
DONE: Mapping[str, Callable[[int], str]] = {
    "cancel": lambda number: f"Cancelling {formatting.plural(number, 'operation')}.",
    "kill": lambda number: f"Killing {formatting.plural(number, 'operation')}.",
    "resume": lambda number: f"Resuming {formatting.plural(number, 'operation')}.",
    "delete": lambda number: "Deleted the study.",
}
DO: Mapping[str, Callable[..., int]] = {
    "cancel": studies.cancel,
    "kill": studies.kill,
    "resume": studies.resume,
    "delete": studies.delete,
}


@needs()
def listed(request: HttpRequest) -> HttpResponse:
    """All studies, newest first."""
    rows = comparison.rows_of(Study.objects.all())
    page = pages.fetch(rows, request.GET.get("cursor", ""), PAGE_SIZE)
    progress = comparison.progress_by_study(page.rows)
    context = {
        "page": page,
        "lines": [(row, progress[row["id"]]) for row in page.rows],
        "may_create": access.may_create(request.user),
    }
    return render(request, "dashboard/studies/list.html", context)


@needs()
def study(request: HttpRequest, study_id: str) -> HttpResponse:
    """One study; the changing part alone where a script asks."""
    found = _find(study_id)
    lines = comparison.lines(found)
    progress = comparison.progress_of(found, lines)
    paths = comparison.paths_of(lines)
    reader = reader_of(found.owner_id, request.user)
    may_change = access.may_change(found.owner_id, reader)
    chosen = comparison.chosen(found, lines)
    context = {
        "study": found,
        "metric_name": comparison.metric_name(found),
        "progress": progress,
        "lines": lines,
        "paths": [(path, path.rpartition(".")[2].replace("_", " ")) for path in paths],
        "figures": list(lines[0]["figures"]) if lines else [],
        "best": comparison.best_line(lines),
        "chosen": chosen,
        "in_sample": comparison.mean(fold["in_sample"] for fold in chosen),
        "out_of_sample": comparison.mean(fold["out_of_sample"] for fold in chosen),
        "heat": _heat(found, lines, request),
        "front": comparison.front(found, lines),
        "objectives": asking.objectives(found),
        "search": _search(found),
        "may_extend": may_change and asking.may_extend(found),
        "actions": [(a, ASKS[a]) for a in _actions(progress)] if may_change else [],
        "inexact": ANY_INEXACT,
        "query": request.GET.urlencode(),
        "drawn_from": reverse("api-study-dimensions", args=[found.pk]),
        "importance_from": reverse("api-study-importance", args=[found.pk]),
        "compared": [line["id"] for line in lines[:MAX_OPERATIONS]],
        "curves_from": reverse("study-curves", args=[found.pk]),
    }
    query = request.GET.urlencode()  # its buttons hold the token of the session
    follow(request, versions.OPERATIONS, reader, query, is_shared=False)
    template = "part" if is_fetch(request) else "page"
    return render(request, f"dashboard/studies/{template}.html", context)


@needs()
def curves(request: HttpRequest, study_id: str) -> JsonResponse:
    """Return the curves of the best or the latest trials, after the points that the page has."""
    found = _find(study_id)
    lines = comparison.lines(found)
    if request.GET.get("of") == "latest":
        lines = sorted(lines, key=lambda line: line["id"], reverse=True)
    unit = found.operations.values_list("unit", flat=True).first() or ""
    legend = comparing.legend_of_trials(lines[:MAX_OPERATIONS], comparison.paths_of(lines), unit)
    after = compared_curves.positions(request.GET.get("points", ""))
    return JsonResponse(
        {
            "operations": compared_curves.of(legend, after),
            "is_active": comparison.progress_of(found, lines).is_active,
        }
    )


@require_POST
@needs(Role.OPERATOR)
def act(request: HttpRequest, study_id: str, action: str) -> HttpResponse:
    """Cancel, kill, resume or delete all of it."""
    if action not in DO:
        raise Http404
    found = _find(study_id)
    try:
        access.require_study(found, request.user, action)
        options = {}
        if action == "resume":
            options["accept_inexact"] = bool(request.POST.get("accept_inexact"))
        number = DO[action](study_id=found.pk, actor=user_of(request), **options)
    except DomainError as refusal:
        return refuse(request, refusal, to=found.get_absolute_url())
    is_gone = action == "delete"
    to = "/studies/" if is_gone else found.get_absolute_url()
    return say(request, DONE[action](number), to=to, leave=True)


@require_POST
@needs(Role.OPERATOR)
def extend(request: HttpRequest, study_id: str) -> HttpResponse:
    """Continue it with more trials."""
    found = _find(study_id)
    to, typed = found.get_absolute_url(), request.POST.get("trials", "")
    trials = whole_number(typed, 1, MAX_TRIALS)
    more = request.POST.get("seconds", "") or "0"
    seconds = whole_number(more, 0, MAX_SECONDS)
    try:
        access.require_study(found, request.user, "extend")
        if trials is None:
            raise ConfigError({"trials": f"got {typed[:20]!r}; allowed: 1 to {MAX_TRIALS}"})
        if seconds is None:
            raise ConfigError({"seconds": f"got {more[:20]!r}; allowed: 0 to {MAX_SECONDS}"})
        number = studies.extend(
            study_id=found.pk, trials=trials, seconds=seconds, actor=user_of(request)
        )
    except ConfigError as error:
        return say(request, str(error), level="error", to=to, status=422)
    except DomainError as refusal:
        return refuse(request, refusal, to=to)
    said = f"Submitted {formatting.plural(number, 'operation')}; others follow as they end."
    return say(request, said, to=to, leave=True)


def _search(found: Study) -> list[str]:
    """Return how the values are searched, as phrases: sampler, pruner and limits."""
    design = found.design
    pruner, parallel = design.get("pruner"), design.get("parallel")
    said = [f"sampler {design['method']}"]
    if pruner:
        said.append(f"pruner {pruner['method']}")
    if parallel:
        said.append(f"at most {parallel} active at a time")
    if found.max_seconds is not None:
        spent, limit = found.seconds_spent, found.max_seconds
        is_spent = "; no more trials are submitted" if spent >= limit else ""
        spent_of = f"{formatting.duration(spent)} of {formatting.duration(limit)}"
        said.append(f"compute time {spent_of}{is_spent}")
    return said


def _find(study_id: str) -> Study:
    try:
        return studies.get(study_id)
    except studies.StudyNotFound as refusal:
        raise SubjectNotFound(str(refusal)) from None


def _actions(progress: comparison.StudyProgress) -> list[str]:
    ended_early = {"FAILED", "CANCELLED"} & progress.counts.keys()
    actions = ["resume"] if ended_early else []
    if progress.is_active:
        return ["kill", "cancel", *actions]
    return ["delete", *actions]


@dataclass(frozen=True, slots=True)
class HeatMapCell:
    """A value of the heat map and the class of its colour; both are empty without a value."""

    value: float | None = None
    strength: str = ""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The values of an objective over two parameters."""

    x: str
    y: str
    columns: Sequence[object]
    rows: Sequence[tuple[object, Sequence[HeatMapCell]]]


def _heat(found: Study, lines: Sequence[Trial], request: HttpRequest) -> HeatMap | None:
    """Return the heat map with the strength of each cell's colour; 0 is the worst there is."""
    heat = comparison.heat(found, lines, request.GET.get("x", ""), request.GET.get("y", ""))
    if heat is None or not heat.ranked or found.folds:
        return None
    ranked = heat.ranked if found.mode == "max" else heat.ranked[::-1]

    def cell(value: float | None) -> HeatMapCell:
        if value is None:
            return HeatMapCell()
        share = ranked.index(value) / (len(ranked) - 1) if len(ranked) > 1 else 1.0
        return HeatMapCell(value, f"strength-{round(share * STRENGTHS)}")

    rows = [(name, [cell(value) for value in values]) for name, values in heat.rows]
    return HeatMap(heat.x, heat.y, heat.columns, rows)
