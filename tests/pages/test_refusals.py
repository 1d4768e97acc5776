"""What people may not do is refused at every address of the pages, and changes nothing."""

import io

import pytest
from django.urls import NoReverseMatch, reverse

from apps.checkpoints.models import Checkpoint
from apps.dashboard import urls
from apps.datasets import services as datasets
from apps.datasets.models import Dataset, Upload
from apps.notifications.models import Delivery, Rule
from apps.operations.models import Event, Operation, SavedView, Study, Tag
from apps.operations.requests.bulk import EDITS
from apps.operations.search import views
from apps.operations.studies import services as studies
from apps.workers.models import Worker
from tests.api.saved import saved
from tests.pages import making
from tests.pages.test_studies import BARS, GRID
from trainops.http.models import Token

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_process")]

KEPT = (
    Operation, Event, Study, Checkpoint, Dataset, Upload, Worker, Rule, Delivery, SavedView, Tag,
    Token,
)  # fmt: skip
OWN = {  # what everybody changes of their own
    "views", "account", "password", "second-factor", "second-factor-remove",
    "second-factor-recovery-codes", "identity", "identity-disconnect", "oidc", "oidc-callback",
    "oidc-sign-out", "oidc-back-channel", "login-code", "login-set-up", "login", "logout",
}  # fmt: skip
OPERATORS = {"operation-new", "dataset-upload", "notifications"}  # what they create
ACTIONS = {
    "act": ("cancel", "kill", "resume", "delete", *EDITS),
    "on-checkpoint": ("pin", "unpin", "verify", "delete"),
    "study-act": ("cancel", "kill", "resume", "delete"),
    "worker-act": ("drain", "undrain"),
    "notification-rule-act": ("test", "delete"),
}
CHANGES = {  # addresses that change something where the role is right
    *ACTIONS, *OPERATORS, "recover", "operation-edit", "operation-favourite", "checkpoints-delete",
    "checkpoints-cleanup", "study-extend", "dataset-delete", "dataset-verify",
    "notification-rule", "delivery-retry", "view-delete", "token-revoke",
}  # fmt: skip


@pytest.fixture
def hers(ana):
    """What ana owns, by the names that addresses have for it."""
    operation = making.operation(ana, "CANCELLED", name="hers", tags=["night"])
    running = making.operation(ana, "RUNNING")
    checkpoint = saved(operation)
    prices = datasets.add_table(io.BytesIO(BARS), filename="bars.csv", owner=ana)
    config = {"recipe": "sma_crossover", "dataset": prices.pk}
    study = studies.create(kind="backtest", config=config, design=GRID, owner=ana)
    Worker.objects.create(worker_id="w-1", kinds=["training"], slots=2)
    rule = Rule.objects.create(user=ana, name="chat", target="https://chat.example.org/")
    status = Delivery.Status.values[-1]
    delivery = Delivery.objects.create(rule=rule, what="TEST", body={}, status=status)
    token = Token.objects.create(ana)[0]
    return {
        "operation_id": operation.pk, "running": running.pk, "checkpoint_id": checkpoint.pk,
        "study_id": study.pk, "worker_id": "w-1", "dataset_id": prices.pk, "rule_id": rule.pk,
        "delivery_id": delivery.pk, "view_id": views.save(owner=ana, name="night").pk,
        "token_id": token.public_id,
    }  # fmt: skip


def posts(hers):
    """Yield the name and the address of each page, once for each action that it takes."""
    for name in sorted({each.name for each in urls.urlpatterns if getattr(each, "name", None)}):
        for action in ACTIONS.get(name, ("",)):
            needed = {"action": action} if action else {}
            for keys in _kwargs(name):
                try:
                    yield name, reverse(name, kwargs={key: hers[key] for key in keys} | needed)
                except (NoReverseMatch, KeyError):
                    continue


def _kwargs(name):
    """Yield the parameters of the addresses of this name, but the action."""
    for each in urls.urlpatterns:
        if getattr(each, "name", None) == name:
            yield set(each.pattern.converters) - {"action"}


def everything():
    return {
        model.__name__: sorted(map(str, model._default_manager.order_by().values_list()))
        for model in KEPT
    }


def body(hers):
    return {
        "id": [hers["operation_id"], hers["running"], hers["checkpoint_id"]], "name": "changed",
        "revision": "0", "tags": "other", "is_favourite": "1", "notes": "changed", "trials": "2",
        "recipe": "digits", "channel": "webhook", "target": "https://example.org/x",
        "file": io.BytesIO(b"a,b\n1,2\n"),
    }  # fmt: skip


def test_each_address_that_changes_something_is_tried(hers):
    assert {name for name, _ in posts(hers)} >= CHANGES


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_a_refused_post_changes_nothing(as_, ana, hers, role):
    allowed = OWN if role == "viewer" else OWN | OPERATORS
    client = as_(making.person("other", role))
    before = everything()
    for name, address in posts(hers):
        if name in allowed:
            continue
        response = client.post(address, body(hers), headers={"X-Requested-With": "fetch"})
        if name in CHANGES:
            level = response.json()["level"] if response.status_code < 400 else "error"
            assert level in ("error", "warning"), (address, response.content)
        assert everything() == before, address


@pytest.mark.parametrize(
    "path", ["/", "/studies/", "/checkpoints/", "/datasets/", "/workers/", "/workers/usage"]
)
def test_an_empty_page_leads_a_viewer_to_no_form(as_, vera, page, path):
    assert "/operations/new" not in as_(vera).get(path).content.decode()


def test_the_refusal_of_a_viewer_names_the_role(as_, vera, hers):
    client = as_(vera)
    for name, address in posts(hers):
        if name in CHANGES - {"view-delete", "token-revoke"}:
            assert client.post(address, body(hers)).status_code == 403, address


@pytest.mark.django_db
class TestAHostThatIsNotAllowed:
    @pytest.mark.parametrize("host", ["train.example.org", "train.example.org:8000"])
    @pytest.mark.parametrize("path", ["/login/", "/api/v1/operations"])
    def test_is_named_with_the_setting_that_allows_it(self, client, path, host):
        response = client.get(path, headers={"host": host})
        assert response.status_code == 400
        text = response.content.decode()
        if path.startswith("/api/"):
            text = response.json()["error"]["message"]
        assert "TRAINOPS_ALLOWED_HOSTS" in text
        assert "train.example.org" in text and ":8000" not in text

    @pytest.mark.parametrize(
        "host", ["<script>alert(1)</script>", "a&quot;b", "x" * 300, "a b", "[::1", ""]
    )
    @pytest.mark.parametrize("path", ["/login/", "/api/v1/operations"])
    def test_that_is_no_host_name_is_not_repeated(self, client, path, host):
        response = client.get(path, headers={"host": host})
        assert response.status_code == 400
        assert "has no valid Host header" in response.content.decode()
        assert not host or host not in response.content.decode()
