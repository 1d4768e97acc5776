"""Actions on several rows of a list of the admin: asked first; who is skipped is named, and why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from trainops.errors import DomainError

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin

MAX_SKIPPED = 20  # rows listed in one response


@dataclass(slots=True)
class BulkAction:
    """One verb for the selected rows. Django's admin calls it twice: to ask, and once confirmed.

    `refusal` returns why a row is skipped, or "". `carry_out` calls the service that the API and
    the pages call; a DomainError skips this row.
    """

    do_not_call_in_templates: ClassVar[bool] = True  # they read its fields
    verb: str  # as on the button: "Resume"
    may: str  # who sees it: `has_<may>_permission`
    consequence: str
    refusal: Callable[[HttpRequest, Any], str]
    carry_out: Callable[[HttpRequest, Any], object]
    is_dangerous: bool = False
    __name__: str = field(init=False)  # this and what follows are read by Django
    short_description: str = field(init=False)
    allowed_permissions: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        self.__name__ = self.verb.lower()
        self.short_description = f"{self.verb}…"
        self.allowed_permissions = [self.may]

    @property
    def dismissal(self) -> str:
        """The button that does nothing."""
        return "Don't cancel" if self.verb == "Cancel" else "Cancel"

    @property
    def variant(self) -> str:
        """Return the look of the button, as unfold names it."""
        return "danger" if self.is_dangerous else "primary"

    def __call__(
        self, admin: "ModelAdmin[Any]", request: HttpRequest, rows: QuerySet[Any]
    ) -> HttpResponse | None:
        judged = [(row, self.refusal(request, row)) for row in rows]
        able = [row for row, why in judged if not why]
        skipped = [(row, why) for row, why in judged if why]
        if "confirmed" not in request.POST:
            return self._ask(admin, request, able, skipped)
        for row in able:
            try:
                self.carry_out(request, row)
            except DomainError as refusal:
                skipped.append((row, refusal.message))
        num_done = len(judged) - len(skipped)
        message = f"{self.verb}: {num_done} of {len(judged)} done."
        admin.message_user(request, message, messages.SUCCESS if num_done else messages.WARNING)
        for row, why in skipped[:MAX_SKIPPED]:
            admin.message_user(request, f"Skipped {row}: {why}.", messages.WARNING)
        return None

    def _ask(
        self,
        admin: "ModelAdmin[Any]",
        request: HttpRequest,
        able: Sequence[Any],
        skipped: Sequence[tuple[Any, str]],
    ) -> HttpResponse:
        plural = str(admin.opts.verbose_name if len(able) == 1 else admin.opts.verbose_name_plural)
        context = {
            **admin.admin_site.each_context(request),
            "title": f"{self.verb} {len(able)} {plural}?",
            "opts": admin.opts,
            "bulk": self,
            "name": self.__name__,
            "able": able,
            "skipped": skipped,
            "checkbox": ACTION_CHECKBOX_NAME,
        }
        return TemplateResponse(request, "admin/confirm_bulk.html", context)
