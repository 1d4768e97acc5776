"""Base classes of the admin: it shows every row, and changes rows only through services.

The admin is for inspection. A form that saved a row would bypass the lifecycle, so there is none.
Each action is a button that asks for confirmation, posts, and calls the service that the API and
the pages call.
"""

from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any, ClassVar, TypedDict, TypeVar, cast

from django.contrib import messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.dateparse import parse_datetime
from unfold.admin import ModelAdmin, TabularInline
from unfold.decorators import action, display
from unfold.enums import ActionVariant
from unfold.forms import BaseDialogForm
from unfold.paginator import InfinitePaginator

from trainops.admin_bulk import BulkAction
from trainops.errors import DomainError
from trainops.http.roles import Role, has_role

Method = TypeVar("Method", bound=Callable[..., Any])


def column(**options: Any) -> Callable[[Method], Method]:
    """Mark a method as a column of a list: unfold's `display`, typed."""
    return cast(Callable[[Method], Method], display(**options))


def button(
    text: str,
    *,
    may: str,
    icon: str,
    question: str,
    consequence: str,
    submit: str,
    variant: ActionVariant = ActionVariant.DEFAULT,
    form_class: type[BaseDialogForm] | None = None,
) -> Callable[[Method], Method]:
    """Make a method a button on a row's page, for whom `has_<may>_permission` allows it.

    form_class: what else the dialog asks. In unfold an action without a dialog is a link that a
    GET carries out, and one without permissions is open to all; this one has both.
    """
    dialog = {
        "title": question,
        "description": consequence,
        "form_class": form_class,
        "form_submit_text": submit,
    }
    made = action(description=text, permissions=[may], icon=icon, variant=variant, dialog=dialog)
    return cast(Callable[[Method], Method], made)


def id_in(address_part: Any) -> str:
    """Return the id that an address of the admin names: there `_` is written `_5F`."""
    return unquote(str(address_part))


class ReadOnly:
    """Read-only for everyone with a role and a staff account."""

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return has_role(request.user, Role.VIEWER)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return has_role(request.user, Role.VIEWER)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class FilteredByTime:
    """Refuses times in the address of a list that no database compares with its own."""

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        for text in (text for _, texts in request.GET.lists() for text in texts):
            try:
                moment = parse_datetime(text)
                if moment is not None and moment.tzinfo is not None:
                    moment.astimezone(UTC)
            except (ValueError, OverflowError):
                raise BadRequest(f"got {text[:60]!r}; allowed: years 1 to 9999 in UTC") from None
        return super().get_changelist_instance(request)  # type: ignore[misc] # of ModelAdmin


class CallsServices:
    """Buttons that call a service and say what came of it."""

    message_user: Callable[..., None]  # of ModelAdmin
    model: Any

    def carried_out(
        self, request: HttpRequest, address: str, deed: Callable[[], str]
    ) -> HttpResponseBase:
        """Do it, say what came of it, and lead on to `address`. An error is shown, not raised."""
        try:
            self.message_user(request, deed(), messages.SUCCESS)
        except DomainError as refusal:
            self.message_user(request, refusal.message, messages.ERROR)
        if "HX-Request" in request.headers:  # the dialog posts by htmx, which would swallow a 302
            return HttpResponse(headers={"HX-Redirect": address})
        return redirect(address)

    def address_of(self, object_id: str) -> str:
        meta = self.model._meta
        return reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[quote(object_id)])

    def address_of_list(self) -> str:
        meta = self.model._meta
        return reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist")


class ReadOnlyAdmin(ReadOnly, FilteredByTime, CallsServices, ModelAdmin):
    """A list without a COUNT, so that it is as quick with 100 000 rows as with ten."""

    paginator = InfinitePaginator
    show_full_result_count = False
    list_per_page = 50
    list_filter_submit = True
    compressed_fields = True
    list_disable_select_all = True  # an action is on rows that its reader has seen
    actions: ClassVar[Sequence[BulkAction]] = ()

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return has_role(request.user, Role.OPERATOR)

    def has_administer_permission(self, request: HttpRequest) -> bool:
        return has_role(request.user, Role.ADMIN)


class ReadOnlyInline(ReadOnly, TabularInline):
    extra = 0
    max_num = 0
    tab = True
    per_page = 20
    show_change_link = False
    can_delete = False
    readonly_fields: ClassVar[tuple[str, ...]] = ()


GROUPS = {
    "Operations": [
        ("Operations", "model_training", "operations_operation"),
        ("Studies", "grid_view", "operations_study"),
        ("Attempts", "replay", "operations_attempt"),
        ("Events", "history", "operations_event"),
        ("Metric points", "show_chart", "operations_metricpoint"),
        ("Logs", "terminal", "operations_logchunk"),
        ("Tags", "sell", "operations_tag"),
        ("Shares", "balance", "operations_share"),
    ],
    "Storage": [
        ("Checkpoints", "save", "checkpoints_checkpoint"),
        ("Datasets", "table", "datasets_dataset"),
        ("Uploads", "upload_file", "datasets_upload"),
    ],
    "Platform": [
        ("Workers", "dns", "workers_worker"),
        ("Notification rules", "notifications", "notifications_rule"),
        ("Deliveries", "outbox", "notifications_delivery"),
    ],
    "Access": [
        ("Users", "person", "auth_user"),
        ("Groups", "group", "auth_group"),
        ("Tokens", "key", "access_token"),
        ("Identities", "badge", "access_identity"),
        ("Audit log", "policy", "access_auditentry"),
    ],
}


class NavigationItem(TypedDict):
    """A link of the sidebar."""

    title: str
    icon: str
    link: str


class NavigationGroup(TypedDict):
    """A group of links of the sidebar."""

    title: str
    separator: bool
    items: list[NavigationItem]


def navigation(request: HttpRequest) -> list[NavigationGroup]:
    """Return the sidebar; `settings.UNFOLD` names this function."""
    return [
        {
            "title": title,
            "separator": True,
            "items": [
                {"title": name, "icon": icon, "link": reverse(f"admin:{page}_changelist")}
                for name, icon, page in entries
            ],
        }
        for title, entries in GROUPS.items()
    ]
