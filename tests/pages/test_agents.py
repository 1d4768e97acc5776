"""What the page of agents shows: recorded episodes, where they were, what they used."""

import json

import pytest

from apps.checkpoints.models import Checkpoint
from apps.operations.models import Operation
from tests.pages import making
from tests.pages.test_new import posted
from tests.rl.cases import ADAPTIVE, SEPARATE
from tests.rl.populations import GRID, job_of, of
from tests.thinning import quick_some
from trainops.kind import KINDS
from trainops.kinds.rl.web import agents
from trainops.recipes import recipes


@pytest.fixture(scope="module")
def learned():
    """Return the plain state and the result of a real population."""
    job = job_of(of(GRID, "dqn", 3, 12, **ADAPTIVE))
    while job.step < job.total_steps:
        job.advance()
    return [
        json.loads(json.dumps(each)) for each in (job.state_dict()["state"], dict(job.result()))
    ]


@pytest.fixture
def stopped(ana, learned):
    operation = making.operation(ana, "CANCELLED", name="walked", kind="rl")
    Checkpoint.objects.create(
        id=f"{operation.pk}-12", operation=operation, attempt=1, type="periodic", step=12,
        state=learned[0], artifacts_path="x", manifest=[], manifest_digest="0" * 64,
        state_size_bytes=1, artifacts_size_bytes=1,
    )  # fmt: skip
    return operation


def test_the_page_names_each_recorded_episode_once(page, stopped):
    text = page.get(f"/operations/{stopped.pk}/").content.decode()
    assert 'data-testid="replay"' in text and "Affordances used" in text
    assert text.count('<option value="6"') == text.count('<option value="12"') == 2, "both sides"


def test_the_best_and_latest_values_and_the_charts_come_before_the_episodes(page, stopped):
    """The first checkpoint, with its recordings, hides no figure."""
    stopped.row.update(metrics={"evaluation_return": 0.5})
    text = page.get(f"/operations/{stopped.pk}/").content.decode()
    places = [text.index(each) for each in ("Best", "Latest", 'id="charts"', 'data-part="agents"')]
    assert places == sorted(places)


def test_a_recording_is_fetched_by_its_step(page, stopped, learned):
    found = page.get(f"/operations/{stopped.pk}/recordings/12").json()
    assert found == learned[0]["evaluations"]["newest"]["recording"]
    assert page.get(f"/operations/{stopped.pk}/recordings/7").status_code == 404


def test_a_result_has_its_recordings_when_checkpoints_are_gone(page, ana, learned):
    operation = making.operation(ana, "COMPLETED", kind="rl", result=learned[1])
    text = page.get(f"/operations/{operation.pk}/").content.decode()
    assert 'data-testid="replay"' in text and "result)" in text
    assert '"recording"' not in text, "they are fetched when they are looked at"


@pytest.mark.slow
def test_agents_with_networks_of_their_own_have_a_line_each(page, ana):
    job = job_of(of(GRID, "dqn", 3, 30, **ADAPTIVE, **SEPARATE))
    while job.step < job.total_steps:
        job.advance()
    result = json.loads(json.dumps(dict(job.result())))
    lines = agents.members({**result, "episodes_completed": result["episodes"]})
    returns = result["evaluations"]["newest"]["returns"]
    assert [line["evaluation"] for line in lines] == sorted(returns, reverse=True)
    assert sum(line["episodes"] for line in lines) == result["episodes"]
    operation = making.operation(ana, "COMPLETED", kind="rl", result=result)
    text = page.get(f"/operations/{operation.pk}/").content.decode()
    table = text.partition('data-testid="members"')[2].partition("</table>")[0]
    assert table.count('<th scope="row">') == 3 and f"{max(returns):.2f}" in table
    best = result["evaluations"]["newest"]["agent"]
    assert f"agent {best}" in text, "whose recording it is"


def test_other_kinds_have_no_such_part(page, ana):
    for kind in ("training", "backtest", "rl"):
        operation = making.operation(ana, "RUNNING", kind=kind)
        assert (
            'data-testid="agents"' not in page.get(f"/operations/{operation.pk}/").content.decode()
        )


def test_recordings_need_a_login(client, stopped):
    assert client.get(f"/operations/{stopped.pk}/recordings/12").status_code == 302


def test_cells_stand_where_the_world_has_them():
    (floor,) = agents.floors([4, 0, 0, 1, 0, 0], [2, 3])
    counts = {(cell["x"], cell["y"]): cell["count"] for cell in floor["cells"]}
    assert counts == {(0, 2): 4, (0, 1): 0, (0, 0): 0, (1, 2): 1, (1, 1): 0, (1, 0): 0}
    assert len(agents.floors([1] * 8, [2, 2, 2])) == 2
    assert agents.floors([1] * 5, [5])[0]["height"] == 1
    assert agents.floors([1] * 9000, [9000]) == agents.floors([], []) == []


def test_stages_are_level_between_moves():
    plain = {"stages": [1, 0], "stage_changes": [[5, 0, 1]], "episodes_completed": 10}
    lines = agents.stage_lines(plain)["lines"]
    assert lines[0]["points"] == "0.0,180.0 480.0,180.0 480.0,0.0 960.0,0.0"
    assert lines[1]["points"] == "0.0,180.0 960.0,180.0"
    assert agents.stage_lines({"stages": [], "stage_changes": [], "episodes_completed": 3}) is None


@pytest.mark.parametrize("name", quick_some(recipes("rl"), every=3))
def test_the_form_of_a_world_as_it_is_shown_is_its_example(page, settings, name):
    response = posted(page, name)
    assert response.status_code == 302, response.context["form"].errors
    settled = Operation.objects.get()
    example = KINDS["rl"].parse_config(recipes("rl")[name].example)
    assert settled.config == example.model_dump(mode="json")


def test_what_is_wrong_inside_a_list_is_reported_at_its_field(page):
    changes = {"config.parameters.affordances": '[{"name": "Exit", "position": [9]}]'}
    response = posted(page, "grid_corridor", **changes)
    (field,) = [f for f in response.context["form"].fields if f.path == "parameters.affordances"]
    assert response.status_code == 422 and "a cell of [8]" in field.error
