"""A new operation: choose a recipe, fill in its form, submit."""

import secrets
from functools import partial
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.http import require_POST

from apps.checkpoints import services as checkpoints
from apps.dashboard import form, trying
from apps.dashboard.form import OWN, Form
from apps.dashboard.gate import needs
from apps.operations.models import Operation
from apps.operations.requests import forking, services
from apps.operations.scheduling import outlook
from apps.operations.studies import services as studies
from trainops.errors import Refusal
from trainops.http.roles import Role
from trainops.kind import KINDS
from trainops.recipes import Recipe, recipes
from trainops.runtime.errors import ConfigError


@needs(Role.OPERATOR)
def new(request: HttpRequest) -> HttpResponse:
    if request.method == "POST":
        return _submit(request)
    fork = _source(request.GET.get("fork", ""))
    source = fork or _source(request.GET.get("from", ""))
    if source is not None:
        filled = Form(recipes()[source.recipe], source.config)
        return _show(request, filled, _of(source), fork=fork)
    recipe = form.choose(request.GET.get("recipe", ""))
    if recipe is None:
        return render(request, "dashboard/new/no_recipe.html")
    return _show(request, Form(recipe, _begun(recipe, request)), dict.fromkeys(OWN, ""))


def _begun(recipe: Recipe, request: HttpRequest) -> dict[str, Any]:
    """Return the recipe's example with the dataset or the model that the address names."""
    config = dict(recipe.example)
    if dataset := request.GET.get("dataset"):
        if "dataset" in config:  # of the engine's own; else of the recipe
            config["dataset"] = dataset
        else:
            config["parameters"] = {**config.get("parameters", {}), "dataset": dataset}
    if trained := Operation.objects.filter(pk=request.GET.get("model", "")).first():
        learned_from = trained.config.get("parameters", {})
        for name, mark in recipe.model_marks().items():
            if mark.fits(trained.kind, trained.recipe):
                config |= {each: learned_from[each] for each in mark.shares if each in learned_from}
                config["parameters"] = {**config.get("parameters", {}), name: trained.pk}
    return config


@require_POST
@needs(Role.OPERATOR)
def fields(request: HttpRequest) -> HttpResponse:
    """The fields again, for another recipe or another dataset; nothing typed is lost."""
    recipe = form.choose(request.POST.get("recipe", ""))
    if recipe is None:
        return HttpResponse(status=404)
    is_same = request.POST.get("shown") == recipe.name
    filled = Form(recipe, recipe.example, posted=request.POST if is_same else None)
    return render(request, "dashboard/new/fields.html", {"form": filled})


def _submit(request: HttpRequest) -> HttpResponse:
    recipe = recipes().get(request.POST.get("recipe", ""))
    if recipe is None:
        messages.error(request, "That recipe is not there any more; choose another.")
        return HttpResponseRedirect("/operations/new")
    filled = Form(recipe, recipe.example, posted=request.POST)
    own = {name: request.POST.get(name, "") for name in OWN}
    fork = _source(request.POST.get("fork", ""))
    try:
        submit: Any = partial(services.submit, kind=recipe.kind)
        if fork is not None:
            submit = partial(forking.fork, operation_id=fork.pk)
        elif filled.is_trying:
            design = trying.design(request.POST, filled.fields)
            submit = partial(studies.create, kind=recipe.kind, design=design)
        made = submit(
            config=filled.to_config(),
            owner=_owner(request),
            name=own["name"],
            tags=own["tags"].split(","),
            priority=_priority(own["priority"]),
            queue=own["queue"].strip(),
            idempotency_key=request.POST.get("once", "")[:64],
        )
    except ConfigError as error:
        filled.errors = dict(error.errors)
        return _show(request, filled, own, fork=fork, status=422)
    except Refusal as refusal:
        filled.errors = refusal.details.get("fields") or {"": refusal.message}
        return _show(request, filled, own, fork=fork, status=422)
    messages.success(request, f"{made.name} is submitted.")
    return HttpResponseRedirect(made.get_absolute_url())


def _source(operation_id: str) -> Operation | None:
    """Return the operation that a new one is to be like, if its recipe is still there."""
    source = Operation.objects.filter(pk=operation_id).first()
    return source if source is not None and source.recipe in recipes() else None


def _show(
    request: HttpRequest,
    filled: Form,
    own: dict[str, Any],
    *,
    fork: Operation | None = None,
    status: int = 200,
) -> HttpResponse:
    newest = checkpoints.to_resume_from(fork.pk)[:1] if fork else []
    context = {
        "fork": fork,
        "fork_at": services.position(newest[0], fork) if fork and newest else "",
        "may_differ": sorted(KINDS[fork.kind].forkable()) if fork else [],
        "form": filled,
        "own": own,
        "own_errors": {name: (filled.errors or {}).get(name, "") for name in OWN},
        "recipes": [each for kind in KINDS for each in recipes(kind).values()],
        "labels": sorted({label for worker in outlook.workers() for label in worker.labels}),
        "num_errors": len(filled.errors or {}),
        "once": secrets.token_hex(16),  # what was posted was refused, and is not what comes next
    }
    return render(request, "dashboard/new/page.html", context, status=status)


def _of(source: Operation) -> dict[str, Any]:
    tags = source.tags.values_list("name", flat=True)
    return {
        "name": source.name,
        "tags": ", ".join(tags),
        "priority": source.priority or "",
        "queue": source.queue,
    }


def _priority(text: str) -> int:
    try:
        priority = int(text or 0)
    except ValueError:
        raise ConfigError({"priority": f"got {text[:20]!r}; must be a whole number"}) from None
    if not -100 <= priority <= 100:
        raise ConfigError({"priority": f"got {priority}; must be from -100 to 100"})
    return priority


def _owner(request: HttpRequest) -> Any:
    return request.user
