"""A further kind in a whole installation: submitted, stopped, resumed, shown, tried in a study."""

import json
import os
import subprocess
from contextlib import closing

import httpx
import pytest
import torch

from tests.further_kind.installing import install
from tests.journey.stack import PROGRAM, running
from tests.waiting import wait_until

PASSWORD = "a long pass phrase"
pytestmark = [pytest.mark.journey, pytest.mark.slow]


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    directory = tmp_path_factory.mktemp("further")
    path = os.pathsep.join([*install(directory / "site"), os.environ.get("PYTHONPATH", "")])
    environment = {"PYTHONPATH": path, "TRAINOPS_ADMIN_PASSWORD": PASSWORD}
    with running(directory / "var", **environment) as stack:
        yield stack


@pytest.fixture(scope="module")
def trained(stack):
    operation_id = stack.submit(recipe="digits", epochs=1)
    stack.wait(operation_id, "COMPLETED")
    return operation_id


def config(trained, **changes):
    return {"recipe": "evaluation", "parameters": {"operation": trained}, "batch_size": 1} | changes


def test_it_stops_and_resumes_to_the_same_result(stack, trained):
    whole = stack.submit(kind="evaluation", **config(trained))
    stack.wait(whole, "COMPLETED")
    stopped = stack.submit(kind="evaluation", **config(trained))
    stack.client.post(f"operations/{stopped}/cancel")
    ended = stack.wait(stopped, "CANCELLED", "COMPLETED")
    if ended["state"] == "CANCELLED" and "resume" in ended["allowed_actions"]:
        stack.post(f"operations/{stopped}/resume")
        stack.wait(stopped, "COMPLETED")
        assert stack.artifacts(stopped) == stack.artifacts(whole)
        assert stack.curve(stopped) == stack.curve(whole)
    assert stack.get(f"operations/{whole}")["result"]["examples"] > 0


def test_its_page_has_its_panel_and_its_form_its_fields(stack, trained):
    operation_id = stack.submit(kind="evaluation", **config(trained, batch_size=64))
    stack.wait(operation_id, "COMPLETED")
    with closing(signed_in(stack)) as session:
        require_pages(session, operation_id, trained)


def require_pages(session, operation_id, trained):
    page = session.get(f"/operations/{operation_id}/").text
    assert 'data-part="scores"' in page
    assert "accuracy" in page
    form = session.get(f"/operations/new?recipe=evaluation&model={trained}").text
    assert "Examples in a step." in form
    assert trained in form
    assert "New evaluation with this model" in session.get(f"/operations/{trained}/").text


def test_a_study_of_it_is_judged_by_its_objective(stack, trained):
    design = {"values": {"batch_size": [16, 64]}}
    body = {"kind": "evaluation", "config": config(trained), "design": design}
    study = stack.post("studies", body)
    assert (study["metric"], study["mode"]) == ("loss", "min")

    def ended():
        found = stack.get(f"studies/{study['id']}")
        return found if found["counts"] == {"COMPLETED": 2} else None

    found = wait_until(ended)
    losses = {each["id"]: each["value"] for each in found["operations"]}
    assert found["best"]["value"] == min(losses.values())
    result = stack.get(f"operations/{found['best']['operation_id']}")["result"]
    assert found["best"]["value"] == result["loss"]


def test_its_checkpoint_is_verified(stack, trained):
    operation_id = stack.submit(kind="evaluation", **config(trained, batch_size=64))
    stack.wait(operation_id, "COMPLETED")
    checkpoint = stack.get("checkpoints", operation_id=operation_id)[0]
    found = stack.post(f"checkpoints/{operation_id}/{checkpoint['checkpoint_id']}/verify")
    assert found["level"] == "ok", found


def test_its_scores_are_exported_by_api_and_command_line(stack, trained, tmp_path):
    operation_id = stack.submit(kind="evaluation", **config(trained, batch_size=64))
    result = stack.wait(operation_id, "COMPLETED")["result"]
    file = tmp_path / "scores.pt"
    outlined = exported(stack, operation_id, file)
    assert outlined["format"] == "evaluation"
    scores = torch.load(file, weights_only=True)  # noqa: TID251 - as another program reads it
    assert (scores["operation"], scores["examples"]) == (trained, result.pop("examples"))
    assert scores["scores"] == result
    response = stack.client.get(f"operations/{operation_id}/export")
    assert response.content == file.read_bytes()
    assert f"scores_of_{trained}.pt" in response.headers["Content-Disposition"]


def exported(stack, operation_id, file):
    """Export by the command line; return what it prints."""
    token = stack.client.headers["Authorization"].removeprefix("Bearer ")
    environment = os.environ | {"TRAINOPS_URL": stack.url, "TRAINOPS_TOKEN": token}
    command = [*PROGRAM, "checkpoints", "export", operation_id, "-o", str(file), "--output", "json"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


def signed_in(stack):
    """Return a client with a session, as a browser has it."""
    session = httpx.Client(base_url=stack.url, follow_redirects=True, timeout=30)
    session.get("/login/")
    form = {"username": "admin", "password": PASSWORD}
    form["csrfmiddlewaretoken"] = session.cookies["csrftoken"]
    session.post("/login/", data=form, headers={"Referer": f"{stack.url}/login/"})
    return session
