"""The Python client with a real server."""

import asyncio
import inspect
import socket
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.operations.lifecycle import State
from apps.operations.models import MetricPoint, Operation
from tests.api.saved import CHANGED, CHANGED_FILE, saved
from tests.api.test_media import logged
from tests.client.conftest import answer
from tests.operations.rows import in_state, submitted
from trainops.client import AsyncClient, Client, OperationFailed, Problem, Refused, curves, handles
from trainops.client.asynchronous import AsyncHandle
from trainops.client.handles import Handle
from trainops.media import Image

pytestmark = pytest.mark.slow

DIGITS = {"kind": "training", "config": {"recipe": "digits", "epochs": 2}}


@pytest.fixture
def client(environment):
    with Client(environment["TRAINOPS_URL"], environment["TRAINOPS_TOKEN"]) as client:
        yield client


def test_a_run_is_submitted_with_changes_once_for_a_key(client, tmp_path):
    file = tmp_path / "wish.yaml"
    file.write_text("kind: training\ntags: [a]\nconfig:\n  recipe: digits\n  epochs: 2\n")
    changes = {"epochs": 3, "checkpoint.every_steps": 7}
    runs = [client.run(file, changes=changes, name="Run", tags=["b"], key="same") for _ in range(2)]
    operation = Operation.objects.get()
    assert {run.id for run in runs} == {operation.pk}
    assert (operation.config["epochs"], operation.config["checkpoint"]["every_steps"]) == (3, 7)
    assert operation.name == "Run" and runs[0].data["tags"] == ["a", "b"]
    assert client.operation(operation.pk[-6:]).id == operation.pk
    assert [each.id for each in client.operations("kind:training")] == [operation.pk]
    assert DIGITS["config"] == {"recipe": "digits", "epochs": 2}


def test_a_refusal_names_its_fields(client):
    with pytest.raises(Refused) as raised:
        client.run(DIGITS, changes={"epoch": 3})
    assert "config.epoch" in raised.value.fields or "epoch" in raised.value.fields
    with pytest.raises(Problem, match="recipe is 'digits' and has no fields"):
        client.run(DIGITS, changes={"recipe.name": 3})


def test_it_is_cancelled_and_waited_for(client, monkeypatch):
    monkeypatch.setattr(handles, "POLL_SECONDS", 0.01)
    run = client.run(DIGITS)
    with pytest.raises(TimeoutError, match="is still PENDING; it continues"):
        run.wait(timeout=0.03)
    assert run.stop(timeout=10).state == "CANCELLED"
    with pytest.raises(Refused, match="has no checkpoint"):
        run.resume()


def test_a_wait_ends_though_the_server_does_not_respond():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(url, "token") as client:
            data = {"operation_id": "op", "name": "", "status": "RUNNING"}
            run = handles.Handle(client.api, data)
            with pytest.raises(TimeoutError, match=r"op was RUNNING before: .*not respond in time"):
                run.wait(timeout=0.1)
            with pytest.raises(TimeoutError):
                asyncio.run(AsyncHandle(run).wait(timeout=0.1))


def test_a_resume_under_changed_code_is_refused_until_that_is_accepted(client, ana, environment):
    operation = in_state(State.CANCELLED, owner=ana)
    saved(operation, environment=CHANGED)
    run = client.operation(operation.pk)
    for branch in (lambda: run.fork({"learning_rate": 0.5}), lambda: run.extend(70)):
        with pytest.raises(Refused, match=CHANGED_FILE) as raised:
            branch()
        assert raised.value.code == "CODE_CHANGED"
    with pytest.raises(Refused, match=CHANGED_FILE) as raised:
        run.resume()
    assert raised.value.code == "CODE_CHANGED"
    assert run.resume(accept_inexact=True).state == "RESUMING"
    operation.row.update(state=State.CANCELLED)

    async def resume():
        async with AsyncClient(
            environment["TRAINOPS_URL"], environment["TRAINOPS_TOKEN"]
        ) as remote:
            handle = await remote.operation(operation.pk)
            return (await handle.resume(accept_inexact=True)).state

    assert asyncio.run(resume()) == "RESUMING"


def test_a_failure_raises_with_its_reason(client, ana):
    operation = in_state(State.FAILED, owner=ana)
    with pytest.raises(OperationFailed, match=f"{operation.pk} FAILED") as raised:
        client.operation(operation.pk).wait()
    assert raised.value.code


def points(operation, *rows):
    MetricPoint.objects.bulk_create(
        MetricPoint(
            operation=operation, name=name, step=step, value=value, attempt=attempt,
            at=timezone.now() + timedelta(seconds=step), retired_by=retired_by,
        )
        for name, step, value, attempt, retired_by in rows
    )  # fmt: skip


def test_metrics_are_joined_over_attempts_without_abandoned_points(client, ana, monkeypatch):
    operation = submitted(ana)
    points(
        operation,
        ("val_loss", 1, 0.5, 1, None), ("val_loss", 2, 0.4, 1, 2), ("val_loss", 3, 0.3, 1, 2),
        ("val_loss", 2, 0.41, 2, None), ("acc", 2, 0.9, 2, None),
    )  # fmt: skip
    monkeypatch.setattr(curves, "PAGE", 2)
    run = client.operation(operation.pk)
    rows = [{"step": 1, "val_loss": 0.5}, {"step": 2, "val_loss": 0.41, "acc": 0.9}]
    assert run.metric_rows() == rows
    frame = run.metrics()
    assert list(frame.index) == [1, 2] and frame.index.name == "step"
    assert list(frame["val_loss"]) == [0.5, 0.41]
    monkeypatch.setattr(handles, "find_spec", lambda _: None)
    assert run.metrics() == rows


def test_metrics_of_none_are_an_empty_frame(client, ana):
    frame = client.operation(submitted(ana).pk).metrics()
    assert frame.empty and frame.index.name == "step"


def test_a_notebook_shows_its_state_without_markup_of_others(client):
    shown = client.run(DIGITS, name="<script>alert(1)</script>")._repr_html_()
    assert "PENDING" in shown and "&lt;script&gt;" in shown and "<script>" not in shown


def test_a_download_takes_no_name_with_directories(scripted, tmp_path):
    files = b'{"success": true, "data": [{"name": "../evil", "checkpoint_id": "c", "blake3": ""}]}'
    server = scripted(answer(files), answer(b"never"))
    with Client(server.url, "token") as client:
        run = handles.Handle(client.api, {"operation_id": "op", "name": "", "status": "COMPLETED"})
        with pytest.raises(Problem, match="without directories"):
            run.download(tmp_path / "into")
    assert [each.name for each in tmp_path.rglob("*")] == ["into"]


def test_a_download_that_arrives_altered_is_deleted(scripted, tmp_path):
    files = b'{"success": true, "data": [{"name": "m", "checkpoint_id": "c", "blake3": "00"}]}'
    server = scripted(answer(files), answer(b"altered"))
    with Client(server.url, "token") as client:
        run = handles.Handle(client.api, {"operation_id": "op", "name": "", "status": "COMPLETED"})
        with pytest.raises(Problem, match="other bytes"):
            run.download(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("one", "other", "more"),
    [(Client, AsyncClient, {"close"}), (Handle, AsyncHandle, {"pause", "require_not_failed"})],
)
def test_the_asynchronous_client_has_each_method_and_parameter(one, other, more):
    names = {name for name in vars(one) if not name.startswith("_")} - more
    assert names <= vars(other).keys()
    for name in names:
        method, same = vars(one)[name], vars(other)[name]
        assert isinstance(method, property) == isinstance(same, property)
        if not isinstance(method, property):
            only_here = {"show"}  # drawn in a notebook meanwhile
            expected = inspect.signature(method).parameters.keys() - only_here
            assert inspect.signature(same).parameters.keys() == expected, name


def test_the_asynchronous_client_does_the_same(environment, monkeypatch):
    monkeypatch.setattr(handles, "POLL_SECONDS", 0.01)

    async def work():
        url, token = environment["TRAINOPS_URL"], environment["TRAINOPS_TOKEN"]
        async with AsyncClient(url, token) as client:
            run = await client.run(DIGITS)
            same, listed = await asyncio.gather(client.operation(run.id), client.operations())
            assert same.id == run.id == listed[0].id
            waiting = asyncio.create_task(same.wait())
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert (await run.stop(timeout=10)).state == "CANCELLED"
            assert (await run.metrics()).empty
            assert "op_training" in run._repr_html_()

    asyncio.run(work())


def test_its_media_are_listed_and_saved(client, tmp_path):
    operation = submitted()
    logged(operation, Image([[0.0]]), name="a")
    logged(operation, Image([[1.0]]), name="b")
    run = client.operation(operation.pk)
    assert [each["name"] for each in run.media()] == ["a", "b"]
    (path,) = run.save_media(tmp_path, "b")
    assert path.read_bytes() == Image([[1.0]]).encode()
    with pytest.raises(Problem, match="no media named 'c'; there are: a, b"):
        run.save_media(tmp_path, "c")


def test_many_runs_are_a_table_of_config_best_values_and_state(client):
    made = [submitted(epochs=epochs) for epochs in (2, 3)]
    for operation, losses in zip(made, ([0.5, 0.2, 0.3], [0.4, 0.1, 0.6]), strict=True):
        operation.row.update(metrics={"val_loss": losses[-1]})
        MetricPoint.objects.bulk_create(
            MetricPoint(
                operation=operation, attempt=1, name="val_loss", step=step, value=value,
                at=timezone.now(),
            )
            for step, value in enumerate(losses)
        )  # fmt: skip
    frame = client.table("kind:training")
    assert list(frame.index) == [each.pk for each in reversed(made)]
    assert list(frame["config.epochs"]) == [3, 2]
    assert list(frame["best.val_loss"]) == [0.1, 0.2]
    assert list(frame["latest.val_loss"]) == [0.6, 0.3]
    assert set(frame["status"]) == {"PENDING"}
    assert list(client.table("kind:rl").index) == []
