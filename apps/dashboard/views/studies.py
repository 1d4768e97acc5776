"""Studies: the list, one with its operations beside each other, and its buttons."""

from collections.abc import Callable, Mapping
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from apps.dashboard import pages, words
from apps.dashboard.answers import refuse, say
from apps.dashboard.gate import is_fetch, needs
from apps.operations.models import Study
from apps.operations.requests import access
from apps.operations.studies import comparison
from apps.operations.studies import services as studies
from trainops.errors import Refusal
from trainops.http.roles import Role

PAGE_SIZE = 50
STRENGTHS = 6  # of the heat map's colours
ASKS = {
    "cancel": "Each operation that has not ended saves a checkpoint at its next safe point, then "
    "stops; the study can be resumed later.",
    "kill": "They end now, without saving: the work since their last checkpoints is lost.",
    "resume": "Those that failed or were cancelled continue from their newest healthy "
    "checkpoints, or begin anew where there is none.",
    "delete": "The study and all of its operations, with their checkpoints, curves and logs, are "
    "gone for good.",
}
DONE: Mapping[str, Callable[[int], str]] = {
    "cancel": lambda number: f"{words.plural(number, 'operation')} are being cancelled.",
    "kill": lambda number: f"{words.plural(number, 'operation')} are being killed.",
    "resume": lambda number: f"{words.plural(number, 'operation')} go on.",
    "delete": lambda number: "The study is deleted.",
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
    standings = comparison.standings(page.rows)
    context = {
        "page": page,
        "lines": [(row, standings[row["id"]]) for row in page.rows],
        "may_create": access.may_create(request.user),
    }
    return render(request, "dashboard/studies/list.html", context)


@needs()
def study(request: HttpRequest, study_id: str) -> HttpResponse:
    """One study; the changing part alone where a script asks."""
    found = _find(study_id)
    lines = comparison.lines(found)
    standing = comparison.standing_of(found, lines)
    paths = comparison.paths_of(lines)
    may_change = access.may_change(found.owner_id, request.user)
    context = {
        "study": found,
        "standing": standing,
        "lines": lines,
        "paths": [(path, path.rpartition(".")[2].replace("_", " ")) for path in paths],
        "figures": list(lines[0]["figures"]) if lines else [],
        "best": comparison.best_line(lines),
        "chosen": comparison.chosen(found, lines),
        "heat": _heat(found, lines, request),
        "actions": [(a, ASKS[a]) for a in _actions(standing)] if may_change else [],
        "query": request.GET.urlencode(),
    }
    template = "part" if is_fetch(request) else "page"
    return render(request, f"dashboard/studies/{template}.html", context)


@require_POST
@needs(Role.OPERATOR)
def act(request: HttpRequest, study_id: str, action: str) -> HttpResponse:
    """Cancel, kill, resume or delete all of it."""
    if action not in DO:
        raise Http404
    found = _find(study_id)
    try:
        access.require_study(found, request.user, action)
        number = DO[action](study_id=found.pk, actor=_actor(request))
    except Refusal as refusal:
        return refuse(request, refusal, to=found.get_absolute_url())
    is_gone = action == "delete"
    to = "/studies/" if is_gone else found.get_absolute_url()
    return say(request, DONE[action](number), to=to, leave=True)


def _find(study_id: str) -> Study:
    try:
        return studies.get(study_id)
    except studies.StudyNotFound as refusal:
        raise Http404(str(refusal)) from None


def _actions(standing: comparison.Standing) -> list[str]:
    ended_early = {"FAILED", "CANCELLED"} & standing.counts.keys()
    actions = ["resume"] if ended_early else []
    if standing.is_active:
        return [*actions, "cancel", "kill"]
    return [*actions, "delete"]


def _heat(found: Study, lines: list[dict[str, Any]], request: HttpRequest) -> dict[str, Any] | None:
    """Return the heat map with the strength of each cell's colour; 0 is the worst there is."""
    heat = comparison.heat(found, lines, request.GET.get("x", ""), request.GET.get("y", ""))
    if heat is None or heat.bounds is None or found.folds:
        return None
    low, high = heat.bounds
    best, worst = (low, high) if found.mode == "min" else (high, low)

    def cell(value: float | None) -> dict[str, Any]:
        if value is None:
            return {"value": None, "strength": ""}
        share = (value - worst) / (best - worst) if best != worst else 1.0
        return {"value": value, "strength": f"strength-{round(share * STRENGTHS)}"}

    rows = [(name, [cell(value) for value in values]) for name, values in heat.rows]
    return {"x": heat.x, "y": heat.y, "columns": heat.columns, "rows": rows}


def _actor(request: HttpRequest) -> Any:
    return request.user
