"""A new operation: choose a recipe, fill in its form, submit."""

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.views.decorators.http import require_POST

from apps.dashboard import config_file, edits, form, picking, trying
from apps.dashboard.branches import Branch, again_of, posted_form, source_of
from apps.dashboard.config_file import ConfigFile
from apps.dashboard.fields import fields_of
from apps.dashboard.form import OWN, Form
from apps.dashboard.permissions import needs, user_of
from apps.operations.api.studies import StudySubmissionFields
from apps.operations.models import Operation, Study
from apps.operations.requests import projects, services
from apps.operations.requests.previews import Preview
from apps.operations.scheduling import queue_status
from apps.operations.studies import planning
from apps.operations.studies import services as studies
from trainops.errors import DomainError
from trainops.http.roles import Role
from trainops.kind import KINDS
from trainops.recipes import Recipe, recipes
from trainops.runtime.errors import ConfigError
from trainops.submission_file import FileProblem


@needs(Role.OPERATOR)
def new(request: HttpRequest) -> HttpResponse:
    if request.method == "POST":
        return _submit(request)
    if (branch := Branch.of(request.GET)) is not None:
        config = branch.config()
        filled = Form(recipes()[branch.source.recipe], config, may_differ=branch.may_differ)
        preview, refusal = branch.answer(config)
        own = _of(branch.source)
        return _show(request, filled, own, branch=branch, preview=preview, refusal=refusal)
    if (source := source_of(request.GET.get("from", ""))) is not None:
        filled = Form(recipes()[source.recipe], source.config, again=source)
        return _show(request, filled, _of(source))
    recent = picking.recent(user_of(request))
    recipe = form.choose(request.GET.get("recipe", ""), *(each.name for each in recent))
    if recipe is None:
        return render(request, "dashboard/new/no_recipe.html")
    return _show(request, Form(recipe, _begun(recipe, request)), dict.fromkeys(OWN, ""))


def _dataset_parameter(recipe: Recipe) -> str:
    """Return the name of the first parameter that names a dataset or a directory."""
    named = (f for f in fields_of(recipe.json_schema()) if f.kind in ("dataset", "directory"))
    return next((field.path for field in named), "dataset")


def _begun(recipe: Recipe, request: HttpRequest) -> dict[str, object]:
    """Return the recipe's example with the dataset or the model that the address names."""
    config = dict(recipe.example)
    if dataset := request.GET.get("dataset"):
        if "dataset" in config:  # of the engine's own; else of the recipe
            config["dataset"] = dataset
        else:
            name = _dataset_parameter(recipe)
            config["parameters"] = {**config.get("parameters", {}), name: dataset}
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
    """The fields again, for another recipe or another dataset, with the edits that fit."""
    recipe = form.choose(request.POST.get("recipe", ""))
    if recipe is None:
        return HttpResponse(status=404)
    shown = recipes().get(request.POST.get("shown", ""), recipe)
    branch = Branch.of(request.POST)
    filled, carried = posted_form(shown, request.POST, branch), None
    if shown is not recipe:
        filled, carried = edits.carry(filled, recipe)
    context = {"form": filled, "carried": carried, "branch": branch}
    return render(request, "dashboard/new/fields.html", context)


@require_POST
@needs(Role.OPERATOR)
def editor(request: HttpRequest) -> HttpResponse:
    """The form as YAML (`show=yaml` in the address), or the YAML as a form."""
    own = {name: request.POST.get(name, "") for name in OWN}
    if "yaml" in request.POST:
        file = ConfigFile(request.POST["yaml"])
        filled, own = _form_of(file, own, request.POST)
    else:
        recipe = form.choose(request.POST.get("recipe", ""))
        if recipe is None:
            return HttpResponse(status=404)
        filled = posted_form(recipe, request.POST, None)
        file = _file_of(filled, own, request.POST)
    shown = None if request.GET.get("show") == "form" and not file.problems else file
    context = _context(request, filled, own, file=shown)
    return render(request, "dashboard/new/editor.html", context)


def _file_of(filled: Form, own: Mapping[str, str], posted: QueryDict) -> ConfigFile:
    """Return the file of a form; it notes what it cannot contain."""
    kind, config = filled.recipe.kind, filled.to_config()
    if not filled.is_trying:
        return config_file.written(kind, config, own)
    try:
        study = {"design": trying.design(posted, filled.triable), **trying.objective(posted)}
    except ConfigError as error:
        file = config_file.written(kind, config, own)
        file.refuse(error)
        return file
    return config_file.written(kind, config, own, study)


def _form_of(
    file: ConfigFile, own: Mapping[str, str], posted: QueryDict
) -> tuple[Form | None, dict[str, str]]:
    """Return the form of a file and the values of OWN; the file notes what no form can show."""
    try:
        body = file.body()
        recipe, errors = config_file.recipe_of(body)
        again = again_of(recipe, posted)
        filled = Form(recipe, body["config"], errors=errors, study=posted, again=again)
        if file.has_design:
            filled.study = _tries_of(cast(StudySubmissionFields, body), filled)
    except (FileProblem, ConfigError) as error:
        file.refuse(error)
        return None, dict(own)
    if filled.unplaced_errors:
        file.refuse_fields(filled.unplaced_errors)
    return filled, {
        "name": body["name"],
        "tags": ", ".join(body["tags"]),
        "priority": str(body["priority"] or ""),
        "queue": body["queue"],
        "project": body["project"],
    }


def _tries_of(body: StudySubmissionFields, filled: Form) -> dict[str, str]:
    """Return the design of a file as the form contains it. Raises ConfigError."""
    design = planning.parse(body["design"])
    given = design.model_dump(mode="json", exclude_unset=True)
    texts = trying.texts_of(given, body["metric"], body["mode"])
    try:
        again = planning.parse(trying.design(texts, filled.triable))
        is_same = again.model_dump() == design.model_dump()
    except ConfigError:
        is_same = False
    if not is_same:
        problem = "the form has no place for this design; submit the file as it is"
        raise ConfigError({"design": problem})
    return texts


def _submit_file(request: HttpRequest) -> HttpResponse:
    file = ConfigFile(request.POST["yaml"])
    made: Operation | Study
    try:
        key, owner = request.POST.get("once", "")[:64], user_of(request)
        body = file.body()
        if file.has_design:
            study = cast(StudySubmissionFields, body)
            made = studies.create(**study, owner=owner, idempotency_key=key)
        else:
            made = services.submit(**body, owner=owner, idempotency_key=key)
    except (FileProblem, ConfigError, DomainError) as error:
        file.refuse(error)
        context = _context(request, None, dict.fromkeys(OWN, ""), file=file)
        return render(request, "dashboard/new/page.html", context, status=422)
    messages.success(request, f"Submitted “{made.name}”.")
    return HttpResponseRedirect(made.get_absolute_url())


def _submit(request: HttpRequest) -> HttpResponse:
    if "yaml" in request.POST:
        return _submit_file(request)
    recipe = recipes().get(request.POST.get("recipe", ""))
    if recipe is None:
        messages.error(request, "This recipe no longer exists. Choose another.")
        return HttpResponseRedirect("/operations/new")
    branch = Branch.of(request.POST)
    filled = posted_form(recipe, request.POST, branch)
    own = {name: request.POST.get(name, "") for name in OWN}
    try:
        config = filled.to_config(over=branch.source.config_given if branch else None)
        if branch is not None and "preview" in request.POST:
            found = branch.preview(config)
            return _show(request, filled, own, branch=branch, preview=found)
        submit: Callable[..., Operation | Study] = partial(services.submit, kind=recipe.kind)
        if branch is not None:
            accepts = bool(request.POST.get("accept_inexact"))
            submit = partial(branch.submit, accept_inexact=accepts)
        elif filled.is_trying:
            design = trying.design(request.POST, filled.triable)
            submit = partial(
                studies.create, kind=recipe.kind, design=design, **trying.objective(request.POST)
            )
        made = submit(
            config=config,
            owner=user_of(request),
            name=own["name"],
            tags=own["tags"].split(","),
            priority=_priority(own["priority"]),
            queue=own["queue"].strip(),
            project=own["project"],
            idempotency_key=request.POST.get("once", "")[:64],
        )
    except ConfigError as error:
        filled.errors = dict(error.errors)
        return _show(request, filled, own, branch=branch, status=422)
    except DomainError as refusal:
        filled.errors = refusal.details.get("fields") or {"": refusal.message}
        branch = branch.refused(refusal) if branch else None
        return _show(request, filled, own, branch=branch, status=422)
    messages.success(request, f"Submitted “{made.name}”.")
    return HttpResponseRedirect(made.get_absolute_url())


def _show(
    request: HttpRequest,
    filled: Form,
    own: Mapping[str, object],
    *,
    branch: Branch | None = None,
    preview: Preview | None = None,
    refusal: str = "",
    status: int = 200,
) -> HttpResponse:
    context = _context(request, filled, own, branch=branch)
    may_warm_start = branch is not None and KINDS[branch.source.kind].has_weights
    context |= {"preview": preview, "refusal": refusal, "may_warm_start": may_warm_start}
    return render(request, "dashboard/new/page.html", context, status=status)


def _context(
    request: HttpRequest,
    filled: Form | None,
    own: Mapping[str, object],
    *,
    branch: Branch | None = None,
    file: ConfigFile | None = None,
) -> dict[str, object]:
    errors = filled.errors or {} if filled else {}
    return {
        "branch": branch,
        "accepts_inexact": bool(request.POST.get("accept_inexact")),
        "again": source_of(request.POST.get("from", request.GET.get("from", ""))),
        "file": file,
        "kept_tries": [] if file is None or file.has_design else trying.typed(request.POST),
        "form": filled,
        "own": own,
        "own_errors": {name: errors.get(name, "") for name in OWN},
        "has_own_errors": any(name in errors for name in OWN),
        "groups": [] if branch or file else picking.groups(user_of(request)),
        "is_choosing": not {"recipe", "from", "yaml"} & {*request.GET, *request.POST},
        "projects": projects.suggestions(user_of(request)),
        "labels": sorted({label for worker in queue_status.workers() for label in worker.labels}),
        "num_errors": len(errors),
        "once": secrets.token_hex(16),  # what was posted was refused, and is not what comes next
    }


def _of(source: Operation) -> dict[str, object]:
    tags = source.tags.values_list("name", flat=True)
    return {
        "name": source.name,
        "tags": ", ".join(tags),
        "priority": source.priority or "",
        "queue": source.queue,
        "project": source.project,
    }


def _priority(text: str) -> int:
    try:
        priority = int(text or 0)
    except ValueError:
        raise ConfigError({"priority": f"got {text[:20]!r}; must be a whole number"}) from None
    if not -100 <= priority <= 100:
        raise ConfigError({"priority": f"got {priority}; must be from -100 to 100"})
    return priority
