"""Projects of new operations over the API, and their members."""

import pytest
from django.contrib.auth.models import User

from apps.operations.lifecycle import State
from apps.operations.models import Operation, Share, Study
from apps.operations.requests import services, shares
from apps.operations.studies.advancing import advance
from tests.api.answers import data, error
from tests.api.conftest import signed_in
from tests.api.saved import saved
from tests.operations.rows import CONFIG, in_state

pytestmark = pytest.mark.django_db
WANTED = {"kind": "training", "config": CONFIG}
VALUES = {"low": 0.1, "high": 0.2}
STUDY = WANTED | {"design": {"values": {"learning_rate": [0.1, 0.2]}}}


@pytest.fixture
def vision(operator):
    """A project with one member, the operator."""
    return shares.save(Share(project="vision"), [operator.user])


def test_an_operation_is_submitted_to_a_project(operator):
    made = data(operator.post("operations", WANTED | {"project": " vision "}), 202)
    assert made["project"] == "vision"
    assert data(operator.post("operations", WANTED), 202)["project"] == ""
    text = error(
        operator.post("operations", WANTED | {"project": "x" * 65}), 400, "VALIDATION_ERROR"
    )
    assert "64 characters" in str(text)
    error(operator.post("operations", WANTED | {"project": "a\u202eb"}), 400, "INVALID_CONFIG")


def test_one_key_is_for_one_project(operator):
    def ask(**more):
        headers = {"Idempotency-Key": "k"}
        return operator.post("operations", WANTED | more, headers=headers)

    first = data(ask(project="vision"), 202)
    assert data(ask(project="vision"), 202)["id"] == first["id"]
    error(ask(project="speech"), 409, "IDEMPOTENCY_KEY_REUSED")


def test_a_study_submits_all_of_its_operations_to_its_project(operator):
    data(operator.post("studies", STUDY | {"project": "vision"}), 202)
    assert set(Operation.objects.values_list("project", flat=True)) == {"vision"}
    error(operator.post("studies", STUDY | {"project": "x" * 65}), 400, "VALIDATION_ERROR")


def forkable(owner, project):
    operation = in_state(State.CANCELLED, owner)
    constant = operation.config | {"scheduler": "none"}
    operation.row.update(config=constant, config_given=constant, project=project)
    saved(operation, step=10, epoch=2)
    return operation


def test_only_members_and_admins_submit_to_a_project_with_members(
    operator, colleague, admin, vision
):
    wanted = WANTED | {"project": "vision"}
    for member in (operator, admin):
        data(member.post("operations", wanted), 202)
    refused = error(colleague.post("operations", wanted), 409, "NOT_A_MEMBER")
    assert "carla is not a member" in refused["details"]["fields"]["project"]
    error(colleague.post("studies", STUDY | {"project": "vision"}), 409, "NOT_A_MEMBER")
    error(colleague.post("operations/estimate", wanted), 409, "NOT_A_MEMBER")
    source = forkable(operator.user, "vision")
    error(colleague.post(f"operations/{source.pk}/fork"), 409, "NOT_A_MEMBER")
    assert (Operation.objects.count(), Study.objects.count()) == (3, 0)
    data(admin.post("shares", {"project": "vision"}))  # without members: it is open
    data(colleague.post("operations", wanted), 202)


def test_trials_are_submitted_after_the_owner_of_a_study_left_the_project(operator, vision):
    design = {"method": "random", "samples": 3, "parallel": 1, "values": {"learning_rate": VALUES}}
    made = data(operator.post("studies", WANTED | {"design": design, "project": "vision"}), 202)
    vision.members.clear()
    (first,) = Operation.objects.all()
    first.row.update(state=State.COMPLETED)
    assert advance(made["id"])
    assert Operation.objects.filter(project="vision").count() == 2
    data(operator.post(f"studies/{made['id']}/cancel"))
    data(operator.post(f"studies/{made['id']}/resume"))  # what has no checkpoint is begun anew
    assert Operation.objects.filter(state=State.PENDING, project="vision").count() == 1
    refused = operator.post(f"studies/{made['id']}/extend", {"trials": 2})
    error(refused, 409, "NOT_A_MEMBER")
    found = data(operator.get(f"studies/{made['id']}"))
    assert (found["project"], found["num_trials"]) == ("vision", 3)


def test_without_a_member_left_only_admins_submit_to_a_project_for_members(
    operator, colleague, admin
):
    ben = signed_in("ben", "operator")
    shares.save(Share(project="vision"), [ben.user])
    ben.user.delete()
    wanted = WANTED | {"project": "vision"}
    error(operator.post("operations", wanted), 409, "NOT_A_MEMBER")
    data(admin.post("operations", wanted), 202)


def test_an_edit_moves_an_operation_into_projects_of_the_user_only(colleague, vision):
    operation = services.submit(kind="training", config=CONFIG, owner=colleague.user)
    path = f"/api/v1/operations/{operation.pk}"

    def edit(project):
        body = {"project": project, "revision": services.get(operation.pk).revision}
        return colleague.client.patch(path, body, content_type="application/json")

    error(edit("vision"), 409, "NOT_A_MEMBER")
    assert data(edit("speech"))["project"] == "speech"
    operation.row.update(project="vision")
    assert data(edit("vision"))["project"] == "vision"  # it is there already: no change


def test_members_are_set_over_the_api(admin, operator):
    signed_in("ben", "operator")
    share = {"project": "vision", "members": ["otto", "ben"]}
    assert data(admin.post("shares", share))["members"] == ["ben", "otto"]
    (listed,) = data(operator.get("shares"))
    assert listed["members"] == ["ben", "otto"]
    closed = data(admin.post("shares", {"project": "vision", "members_only": True}))
    assert (closed["members"], closed["members_only"]) == ([], True)
    opened = data(admin.post("shares", {"project": "vision"}))
    assert (opened["members"], opened["members_only"]) == ([], False)
    wrong = error(
        admin.post("shares", {"owner": "ben", "members": ["otto"]}), 400, "VALIDATION_ERROR"
    )
    assert "members" in wrong["details"]["fields"]
    wrong = error(
        admin.post("shares", {"project": "x", "members": ["gone"]}), 400, "VALIDATION_ERROR"
    )
    assert "members" in str(wrong["details"]["fields"])
    assert Share.objects.count() == 1 and User.objects.filter(username="ben").exists()
