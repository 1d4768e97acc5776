"""Notification rules: list, create, change, test, delete; their deliveries; retries."""

from collections.abc import Callable

from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from apps.dashboard.permissions import needs, user_of
from apps.dashboard.responses import refuse, say
from apps.dashboard.rule_form import RuleForm
from apps.notifications import services
from apps.notifications.models import Rule
from apps.operations.requests import access
from trainops.errors import DomainError
from trainops.http.roles import Role

ADDRESS = "/notifications/"
MAX_DELIVERIES = 50


@needs()
def notifications(request: HttpRequest) -> HttpResponseBase:
    """Rules and deliveries; viewers have none, and find the browser notifications only."""
    if request.method == "POST":
        return _created(request)
    return _listed(request, RuleForm(None, user=user_of(request)))


@needs(Role.OPERATOR)
def _created(request: HttpRequest) -> HttpResponse:
    form = RuleForm(request.POST, user=user_of(request))
    if not form.is_valid():
        return _listed(request, form)
    try:
        made = services.create(user_of(request), **form.cleaned_data)
    except DomainError as refusal:
        return refuse(request, refusal, to=ADDRESS)
    return say(request, "Notification rule created.", to=f"{ADDRESS}{made.pk}/")


def _listed(request: HttpRequest, form: RuleForm) -> HttpResponse:
    user = user_of(request)
    may_create = access.may_create(user)
    context = {
        "form": form,
        "may_create": may_create,
        "rules": services.visible_to(user) if may_create else [],
        "deliveries": services.deliveries_of(user)[:MAX_DELIVERIES] if may_create else [],
    }
    status = 422 if form.errors else 200
    return render(request, "dashboard/notifications/page.html", context, status=status)


@never_cache
@needs(Role.OPERATOR)
def rule(request: HttpRequest, rule_id: int) -> HttpResponse:
    """One rule with its secret; a POST changes it."""
    found = _found(request, rule_id)
    form = RuleForm(request.POST or None, user=user_of(request), instance=found)
    if request.method == "POST" and form.is_valid():
        try:
            services.update(found, **form.changes)
        except ValidationError as error:  # together with what another request has changed
            return say(request, " ".join(error.messages), level="error", to=f"{ADDRESS}{rule_id}/")
        return say(request, "Notification rule changed.", to=f"{ADDRESS}{rule_id}/")
    context = {
        "rule": found,
        "form": form,
        "deliveries": found.deliveries.select_related("rule")[:MAX_DELIVERIES],
    }
    status = 422 if form.errors else 200
    return render(request, "dashboard/notifications/rule.html", context, status=status)


@require_POST
@needs(Role.OPERATOR)
def act(request: HttpRequest, rule_id: int, action: str) -> HttpResponse:
    """Send a test of a rule, or delete it."""
    carry_out = ACTIONS.get(action)
    if carry_out is None:
        raise Http404(f"got {action[:40]!r}; allowed: {', '.join(ACTIONS)}")
    return carry_out(request, _found(request, rule_id))


def _test(request: HttpRequest, found: Rule) -> HttpResponse:
    try:
        services.test(found)
    except DomainError as refusal:
        return refuse(request, refusal, to=f"{ADDRESS}{found.pk}/")
    return say(request, "The test is sent within seconds.", to=f"{ADDRESS}{found.pk}/", leave=True)


def _delete(request: HttpRequest, found: Rule) -> HttpResponse:
    found.delete()
    return say(request, "Notification rule deleted.", to=ADDRESS, leave=True)


ACTIONS: dict[str, Callable[[HttpRequest, Rule], HttpResponse]] = {
    "test": _test,
    "delete": _delete,
}


@require_POST
@needs(Role.OPERATOR)
def retry(request: HttpRequest, delivery_id: int) -> HttpResponse:
    try:
        delivery = services.retry(delivery_id, user_of(request))
    except DomainError as refusal:
        return refuse(request, refusal, to=ADDRESS)
    return say(
        request, "It is sent within seconds.", to=f"{ADDRESS}{delivery.rule_id}/", leave=True
    )


def _found(request: HttpRequest, rule_id: int) -> Rule:
    try:
        return services.get(rule_id, user_of(request))
    except DomainError as error:
        raise Http404(error.message) from error
