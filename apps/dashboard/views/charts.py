"""Which charts a user sees: kept for them, so that it is the same in each of their browsers."""

from collections.abc import Collection, Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, JsonResponse
from rest_framework import serializers

from apps.dashboard.permissions import needs, user_of
from apps.operations.models import ChartChoice
from trainops.http.parsers import NotUsable, read_json
from trainops.http.serializers import StrictSerializer

MAX_NAMES, MAX_NAME = 1000, 200


def _names() -> serializers.ListField:
    name = serializers.CharField(max_length=MAX_NAME)
    return serializers.ListField(child=name, max_length=MAX_NAMES, required=False, default=list)


class ChartChangeSerializer(StrictSerializer):
    """A change of the choice; names that it does not mention stay as they are."""

    hide = _names()
    show = _names()
    pin = _names()
    unpin = _names()
    order = _names()


@needs()
def choice(request: HttpRequest) -> JsonResponse:
    """Return the choice of the user (null: none was made), or apply the posted change to it.

    `user` is the one for whom the page was made; another may have signed in since.
    """
    user = user_of(request)
    given = request.POST if request.method == "POST" else request.GET
    if given.get("user") != str(user.pk):
        problem = f"This page was made for another user than {user}. Reload it."
        return JsonResponse({"level": "error", "message": problem}, status=409)
    if request.method == "POST":
        try:
            change: Any = read_json(request.POST.get("change", ""))
        except NotUsable as problem:
            return JsonResponse({"errors": {"change": [str(problem)]}}, status=400)
        posted = ChartChangeSerializer(data=change)
        if not posted.is_valid():
            return JsonResponse({"errors": posted.errors}, status=400)
        if problems := _apply(posted.validated_data, user):
            return JsonResponse({"errors": problems}, status=400)
    kept = ChartChoice.objects.filter(user=user).values("hidden", "pinned", "order").first()
    return JsonResponse({"choice": kept})


@transaction.atomic
def _apply(change: Mapping[str, list[str]], user: User) -> dict[str, list[str]]:
    """Store the changed choice, or return why it cannot be stored."""
    kept, _ = ChartChoice.objects.select_for_update().get_or_create(user=user)
    kept.hidden = _changed(kept.hidden, change["hide"], change["show"])
    kept.pinned = _changed(kept.pinned, change["pin"], change["unpin"])
    kept.order = _changed(change["order"], kept.order)[:MAX_NAMES]
    for name, names in {"hide": kept.hidden, "pin": kept.pinned}.items():
        if len(names) > MAX_NAMES:
            return {name: [f"got {len(names)} charts; allowed: up to {MAX_NAMES}"]}
    kept.save()
    return {}


def _changed(names: list[str], added: list[str], removed: Collection[str] = ()) -> list[str]:
    return [name for name in dict.fromkeys([*names, *added]) if name not in removed]
