"""The admin shows everything, changes nothing by forms, and stays quick."""

import pytest
from django.contrib import admin as django_admin
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Group, User
from django.urls import reverse
from django.utils import timezone

from apps.datasets.models import Dataset, Upload
from apps.notifications import services
from apps.notifications.models import Delivery, Rule
from apps.operations.lifecycle import State
from apps.operations.models import LogChunk, MetricPoint, Operation, Share, Study
from apps.workers import registry
from tests.api.saved import saved
from tests.operations.rows import claimed, in_state, submitted
from tests.thinning import quick_some
from trainops.admin_base import ReadOnly, navigation
from trainops.http.models import Identity, Token

OURS = ("operations", "checkpoints", "datasets", "workers", "access", "notifications")
MODELS = [model for model in django_admin.site._registry if model._meta.app_label in OURS]
WITHOUT_FORMS = [model for model in MODELS if model not in (Rule, Share)]  # settings, no records


@pytest.fixture
def rows(root):
    """At least one row of every model."""
    operation = claimed(root.user)
    operation.tags.create(name="tag")
    saved(in_state(State.CANCELLED, root.user))
    registry.register(worker_id="w")
    LogChunk.objects.create(operation=operation, attempt=1, text="<script>alert(1)</script>")
    MetricPoint.objects.create(
        operation=operation, attempt=1, name="loss", step=1, value=1.0, at=timezone.now()
    )
    Dataset.objects.create(
        id="ds_0123456789abcdef", digest="a", source_digest="b", name="iris", format="csv",
        num_rows=1, num_columns=1, columns=[], preview=[], source_bytes=1, size_bytes=1,
    )  # fmt: skip
    Upload.objects.create(owner=root.user, filename="large.csv", size_bytes=3, options={})
    Token.objects.create(root.user)
    Identity.objects.create(user=root.user, issuer="https://id.example.org", subject="1")
    rule = Rule.objects.create(name="chat", target="https://chat.example.org/")
    Delivery.objects.create(rule=rule, what="TEST", body={})
    Share.objects.create(project="<script>alert(1)</script>")
    Study.objects.create(
        id="st_20260101_000000_abcdef", name="<script>alert(1)</script>", kind="training",
        config={}, design={}, submission={}, metric="best.value", mode="min", num_planned=1,
    )  # fmt: skip


def page_of(model, kind, *args):
    return reverse(
        f"admin:{model._meta.app_label}_{model._meta.model_name}_{kind}",
        args=[quote(each) for each in args],
    )


def test_every_model_has_a_page():
    assert {model.__name__ for model in MODELS} == {
        "Operation", "Attempt", "Event", "MetricPoint", "LogChunk", "Tag",
        "Checkpoint", "Dataset", "Upload", "Worker", "Token", "Study", "Rule", "Delivery",
        "AuditEntry", "Share", "Identity",
    }  # fmt: skip
    labels = {model._meta.app_label for model in django_admin.site._registry}
    assert labels == {*OURS, "auth"}


@pytest.mark.parametrize("model", quick_some(MODELS, every=3), ids=lambda model: model.__name__)
def test_lists_and_pages_render(root, rows, model):
    page = root.get(page_of(model, "changelist"))
    assert page.status_code == 200
    assert b"<script>alert" not in page.content
    row = model._default_manager.first()
    assert root.get(page_of(model, "change", row.pk)).status_code == 200
    search = root.get(page_of(model, "changelist"), {"q": "nothing like this"})
    assert search.status_code == 200


@pytest.mark.parametrize(
    "model", quick_some(WITHOUT_FORMS, every=4), ids=lambda model: model.__name__
)
def test_no_form_adds_changes_or_deletes(root, rows, model):
    row = model._default_manager.first()
    before = list(model._default_manager.values())
    assert root.get(page_of(model, "add")).status_code == 403
    assert root.post(page_of(model, "delete", row.pk), {"post": "yes"}).status_code == 403
    page = root.post(page_of(model, "change", row.pk), {"state": "COMPLETED", "name": "x"})
    assert page.status_code == 403
    root.post(
        page_of(model, "changelist"),
        {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"},
    )
    assert list(model._default_manager.values()) == before


def test_who_has_no_role_sees_nothing(client, db):
    user = User.objects.create_user("nobody", is_staff=True)
    client.force_login(user)
    submitted(user)
    assert client.get("/admin/operations/operation/").status_code == 403
    operator = User.objects.create_user("outside")
    operator.groups.add(Group.objects.get_or_create(name="operator")[0])
    client.force_login(operator)  # a role, but no staff account
    assert client.get("/admin/operations/operation/").status_code == 302


def test_viewers_see_no_tokens(viewer):
    Token.objects.create(viewer.user)
    assert viewer.get("/admin/access/token/").status_code == 403


def test_every_button_asks_first_and_says_who_may():
    """In unfold one without `dialog` is a GET link, and one without `permissions` is for all."""
    buttons = 0
    for model in MODELS:
        page = django_admin.site._registry[model]
        assert isinstance(page, ReadOnly)
        assert not (page.actions_list or page.actions_row or page.actions_submit_line)
        for name in page.actions_detail:
            button = getattr(page, name)
            assert button.allowed_permissions, name
            assert button.dialog["form_submit_text"], name
            buttons += 1
    assert buttons == 16


@pytest.mark.slow
def test_a_list_costs_the_same_however_long_it_is(root, django_assert_max_num_queries):
    template = submitted(root.user)
    for number in range(60):
        template.pk = f"op_training_20260101_000000_{number:06x}"
        Operation.objects.bulk_create([template])
    root.get("/admin/operations/operation/")
    with django_assert_max_num_queries(7) as queries:
        page = root.get("/admin/operations/operation/")
    assert page.status_code == 200
    assert not any("COUNT(" in query["sql"].upper() for query in queries.captured_queries)


@pytest.mark.slow
def test_the_sidebar_leads_to_every_page(root):
    entries = [entry for group in navigation(None) for entry in group["items"]]
    for entry in entries:
        assert root.get(entry["link"]).status_code == 200, entry["title"]


def test_only_superusers_add_people(admin, root):
    """A form that gives roles could make its user a superuser."""
    for path in ("/admin/auth/user/", "/admin/auth/user/add/", "/admin/auth/group/"):
        assert (admin.get(path).status_code, root.get(path).status_code) == (403, 200)


def test_notification_rules_follow_a_user_that_is_renamed(root, operator):
    otto = operator.user
    target = "https://example.org/"
    own = Rule.objects.create(name="own", target=target, user=otto, owner="otto")
    by_admin = Rule.objects.create(name="of otto", target=target, owner="otto")
    other = Rule.objects.create(name="of ada", target=target, owner="ada")
    form = root.get(f"/admin/auth/user/{otto.pk}/change/").context["adminform"].form
    fields = {name: "" if each is None else each for name, each in form.initial.items()}
    fields["date_joined_0"], fields["date_joined_1"] = "2026-01-01", "12:00:00"
    fields |= {"username": "otto.k", "is_active": "on", "last_login_0": "", "last_login_1": ""}
    fields["groups"] = [each.pk for each in otto.groups.all()]
    answer = root.post(f"/admin/auth/user/{otto.pk}/change/", fields)
    assert answer.status_code == 302
    rules = Rule.objects.values_list("pk", "owner")
    assert dict(rules) == {own.pk: "otto.k", by_admin.pk: "otto.k", other.pk: "ada"}
    services.update(own, on_completed=True)  # still a rule that its user may have
