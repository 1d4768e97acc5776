"""Every page by name, with something to show on each."""

import json
from datetime import timedelta
from io import BytesIO
from pathlib import Path

from django.contrib.auth.models import Group, User
from django.template.loader import render_to_string
from django.utils import timezone

from apps.datasets import services as datasets
from apps.notifications.models import Rule
from apps.operations.models import Operation, Study
from apps.operations.studies import services as studies
from apps.workers.models import LoadSample, Worker
from tests.api.saved import saved
from tests.backtest.market import run, walk
from tests.browser.test_replay import made as population
from tests.federated.runs import ServerLedger
from tests.pages import making
from tests.pages.test_federated import job_at, shown
from tests.pages.test_studies import BARS
from tests.rl.cases import ADAPTIVE
from tests.rl.populations import GRID, of

ERRORS = ("400", "403", "403_csrf", "404", "500", "503", "refused")
DESIGN = {
    "values": {"parameters.fast": [3, 5], "parameters.slow": [10, 30], "cash": [1e3, 1e4]},
    "further_objectives": [{"metric": "trades", "mode": "min"}],
}  # fmt: skip


def addresses(admin: User, directory: Path) -> dict[str, str]:
    """Fill the database, and return the address of each page. directory: for files of a run."""
    admin.is_staff = True
    admin.save()
    admin.groups.set([Group.objects.get(name="admin")])
    trained = [_trained(admin, state) for state in ("COMPLETED", "FAILED", "RUNNING")]
    completed, failed, running = trained
    checkpoint = saved(completed)
    making.operation(admin, "CANCELLED")
    _workers()
    rule = Rule.objects.create(
        user=admin, channel="webhook", target="https://example.org/hook", name="to the chat"
    )
    prices = datasets.add_table(BytesIO(BARS), filename="bars.csv", owner=admin).pk
    return {
        "list": "/",
        "list, sorted": "/?sort=-val_loss&columns=val_loss,epochs,-worker",
        "list, to review": "/?tab=attention",
        "groups": "/?group=state",
        "save a view": "/operations/views?q=tag:night",
        "completed": _page(completed),
        "failed": _page(failed),
        "running": _page(running),
        "subject of a question": f"/operations/confirm/kill?id={running.pk}",
        "edit": f"{_page(completed)}edit",
        "backtest": _page(_backtested(admin, directory)),
        "federated": _page(_federated(admin)),
        "replay": _page(_played(admin)),
        "new": "/operations/new",
        "form": "/operations/new?recipe=digits",
        "longer": f"/operations/new?extend={completed.pk}",
        "choice to compare": f"/compare/?ids={completed.pk}",
        "compare": "/compare/?ids=" + ",".join(each.pk for each in trained),
        "checkpoints": "/checkpoints/",
        "cleanup": "/checkpoints/cleanup",
        "delete a checkpoint": f"/checkpoints/{checkpoint.pk}/confirm-delete",
        "studies": "/studies/",
        "study": _study(admin, prices).get_absolute_url(),
        "workers": "/workers/",
        "usage": "/workers/usage",
        "load": "/workers/w-1/load",
        "datasets": "/datasets/",
        "dataset": f"/datasets/{prices}/",
        "notifications": "/notifications/",
        "rule": f"/notifications/{rule.pk}/",
        "settings": "/settings/",
        "keys": "/help/keys",
        "tour": "/help/tour",
        "api": "/api/docs/",
        "docs": "/docs/",
        "docs-page": "/docs/configuration/",
        "docs-search": "/docs/?q=checkpoint",
        "account": "/account/",
        "password": "/account/password",
        "second factor": "/account/second-factor",
        "missing": "/nothing-is-here",
    }


def error_page(name: str) -> str:
    """Return the HTML of a page of an error, by the name of its template."""
    context = {
        "exception": "This requires the role operator; your account has the role viewer.",
        "refusal": {"status": 503, "message": "The checkpoints are not available now."},
    }
    return render_to_string(f"{name}.html", context)


def _page(operation: Operation) -> str:
    return f"/operations/{operation.pk}/"


def _trained(owner: User, state: str) -> Operation:
    name = "a rather long name " * 5 if state == "RUNNING" else f"a {state.lower()} one"
    made = making.operation(owner, state, name=name, tags=["night"], metrics={"val_loss": 0.1})
    making.attempt(made, started_at=timezone.now() - timedelta(hours=9))
    making.curve(made)
    making.log(made, "epoch 1: val_loss 0.5\n" + "x" * 500)
    return made


def _workers() -> None:
    gpus = [{"name": "NVIDIA A100-SXM4-80GB", "memory_bytes": 85 * 10**9}]
    Worker.objects.create(
        worker_id="w-1", kinds=["training"], slots=2, num_running=1, labels=["a100"],
        capabilities={"gpus": gpus, "cpu_count": 64, "ram_bytes": 2**39},
        last_error="x" * 200,
    )  # fmt: skip
    Worker.objects.create(worker_id="w-2", heartbeat_at=timezone.now() - timedelta(hours=1))
    LoadSample.objects.create(worker_id="w-1", cpu_percent=12.5, memory_bytes=2**30)


def _backtested(owner: User, directory: Path) -> Operation:
    result = json.loads(json.dumps(run(walk(500), directory, recipe="sma_crossover").result()))
    return making.operation(owner, "COMPLETED", name="walked", kind="backtest", result=result)


def _federated(owner: User) -> Operation:
    ledger = ServerLedger()
    return shown(owner, job_at(11, "sample", ledger), ledger)


def _played(owner: User) -> Operation:
    evaluation = {"every_steps": 4, "max_frames": 50}
    config = of(GRID, "dqn", 3, 40, evaluation=evaluation, **ADAPTIVE)
    return population(owner, config, is_finished=False)


def _study(owner: User, prices: str) -> Study:
    config = {"recipe": "sma_crossover", "dataset": prices}
    study = studies.create(kind="backtest", config=config, design=DESIGN, owner=owner)
    for operation in study.operations.all():
        tried = operation.config["parameters"]
        result = {"sharpe": tried["slow"] - tried["fast"], "return": 0.1, "trades": 7}
        operation.row.update(state="COMPLETED", result=result)
    return study
