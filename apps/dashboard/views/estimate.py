"""What Submit would do, beside the button of a new operation."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from apps.dashboard.branches import Branch, posted_form, source_of
from apps.dashboard.config_file import ConfigFile
from apps.dashboard.formatting import plural
from apps.dashboard.permissions import needs, user_of
from apps.operations.errors import NotAllowed
from apps.operations.models import Operation
from apps.operations.requests import estimates, forking
from apps.operations.requests.previews import Change
from apps.operations.requests.submission import with_platform_defaults
from apps.operations.scheduling.blocking import BlockingReason
from trainops.http.roles import Role
from trainops.kind import KINDS
from trainops.plain import Config
from trainops.recipes import find
from trainops.runtime.config import differences
from trainops.runtime.errors import ConfigError
from trainops.submission_file import FileProblem


@require_POST
@needs(Role.OPERATOR)
def estimate(request: HttpRequest) -> HttpResponse:
    """What the posted form would do, or how many of its fields need correction."""
    try:
        kind, config, queue, project = _posted(request)
        found = estimates.estimate(
            kind=kind, config=config, owner=user_of(request), queue=queue, project=project
        )
        context: dict[str, object] = {
            "estimate": found,
            "starts": found.status.code is BlockingReason.SOON,
            "is_fork": (branch := Branch.of(request.POST)) is not None and branch.is_fork,
            "earlier": plural(found.num_earlier, "earlier run"),
        }
        if source := source_of(request.POST.get("from", "")):
            context |= {"source": source, "changes": _changes(source, kind, config)}
    except FileProblem as error:
        context = {"problem": f"Line {error.line}: {error.why}" if error.line else error.why}
    except NotAllowed as refusal:
        context = {"problem": refusal.message}
    except ConfigError as error:
        context = {"problem": f"{plural(len(error.errors), 'field')} to correct: {error}"}
    return render(request, "dashboard/new/estimate.html", context)


def _posted(request: HttpRequest) -> tuple[str, Config, str, str]:
    """Return kind, config, label and project that were posted.

    Raises FileProblem and ConfigError.
    """
    if "yaml" in request.POST:
        body = ConfigFile(request.POST["yaml"]).body()
        return body["kind"], body["config"], body["queue"], body["project"]
    recipe = find(request.POST.get("recipe", ""))
    branch = Branch.of(request.POST)
    filled = posted_form(recipe, request.POST, branch)
    if branch is None:
        config = filled.to_config()
    else:
        before = branch.source.config_given
        config = forking.merged(before, filled.to_config(over=before))
    own = request.POST
    return recipe.kind, config, own.get("queue", "").strip(), own.get("project", "")


def _changes(source: Operation, kind: str, config: Config) -> list[Change]:
    """Return the fields that differ from those of an operation of the same kind."""
    if source.kind != kind:
        return []
    before = KINDS[kind].parse_config(source.config)
    after = KINDS[kind].parse_config(with_platform_defaults(kind, config))
    return [Change(*each) for each in differences(before, after)]
