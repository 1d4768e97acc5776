"""What `up` does to the database before anything starts."""

import json
import shutil
import stat
import subprocess
import sys
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from apps.installation.models import StorageBinding
from apps.workers import registry
from apps.workers.models import Worker
from trainops.clock import seconds_from_now
from trainops.http.models import Token
from trainops.kind import KINDS
from trainops.launch.prepare import prepare
from trainops.launch.refusal import CannotStart
from trainops.launch.servers import postgres_server
from trainops.paths import ROOT

URL = "http://127.0.0.1:8123"
pytestmark = [pytest.mark.django_db, pytest.mark.database]


@pytest.fixture(autouse=True)
def data_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINOPS_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("TRAINOPS_ADMIN_PASSWORD", raising=False)
    return tmp_path


def remembered(data_dir) -> Any:
    return json.loads((data_dir / "cli.json").read_text())


def test_the_first_start_makes_an_admin_whose_password_is_shown_once():
    first = prepare()
    assert first.admin == "admin"
    assert User.objects.get(username="admin").check_password(first.password)
    assert set(Group.objects.values_list("name", flat=True)) >= {"viewer", "operator", "admin"}
    second = prepare()
    assert (second.admin, second.password, second.migrated) == ("admin", "", 0)


@pytest.mark.slow
def test_two_that_begin_at_once_prepare_one_database_in_turns(data_dir, monkeypatch):
    command = [sys.executable, "-m", "trainops.launch.prepare", "--json"]
    with postgres_server() as url:
        monkeypatch.setenv("TRAINOPS_DATABASE_URL", url)
        both = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(2)]
        said = [json.loads(each.communicate()[0]) for each in both]
    assert [each.returncode for each in both] == [0, 0]
    first, second = sorted(said, key=lambda each: -each["migrated"])
    assert (first["migrated"] > 100, second["migrated"]) == (True, 0)
    assert (bool(first["password"]), second["password"]) == (True, "")


def test_the_storages_are_bound_and_another_installations_are_refused():
    prepare()
    assert set(StorageBinding.objects.values_list("pk", flat=True)) == {"checkpoints", "datasets"}
    StorageBinding.objects.all().delete()
    with pytest.raises(CannotStart, match="belongs to another installation"):
        prepare()
    assert prepare(take_over_storage=True).warnings == []
    assert prepare().warnings == []


def test_a_storage_is_not_taken_over_while_a_worker_can_use_the_present_one():
    prepare()
    StorageBinding.objects.all().delete()
    registry.register(worker_id="w@other-host")
    Worker.objects.update(storage_problem="not mounted")
    registry.register(worker_id="box", worker_type="custom")  # over HTTP: it has no storage
    assert prepare(take_over_storage=True).warnings == []
    before = list(StorageBinding.objects.order_by("pk").values_list("storage_id", flat=True))
    Worker.objects.update(storage_problem="")
    with pytest.raises(CannotStart, match="w@other-host can use the present one"):
        prepare(take_over_storage=True)
    after = list(StorageBinding.objects.order_by("pk").values_list("storage_id", flat=True))
    assert after == before
    Worker.objects.update(heartbeat_at=seconds_from_now(-3600))  # it has ended
    assert prepare(take_over_storage=True).warnings == []


def test_a_storage_that_is_away_is_a_warning(settings):
    prepare()
    shutil.rmtree(settings.CHECKPOINT_ROOT)
    (warning,) = prepare().warnings
    assert "is not mounted, or was emptied" in warning


def test_a_superuser_that_is_there_already_stays_the_only_one():
    User.objects.create_superuser("ada", password="x")
    assert prepare().admin == "ada"
    assert User.objects.count() == 1


def test_a_person_called_admin_is_not_made_a_superuser():
    User.objects.create_user("admin")
    assert prepare().admin == "admin2"
    assert not User.objects.get(username="admin").is_superuser


def test_a_given_password_is_used_and_not_shown(monkeypatch):
    monkeypatch.setenv("TRAINOPS_ADMIN_PASSWORD", "from a secret file")
    assert prepare().password == ""
    assert User.objects.get(username="admin").check_password("from a secret file")


def test_the_command_line_gets_a_token_that_it_keeps(data_dir):
    prepare(url=URL)
    first = remembered(data_dir)
    assert first["url"] == URL
    assert stat.S_IMODE((data_dir / "cli.json").stat().st_mode) == 0o600
    prepare(url="http://127.0.0.1:9000")
    assert remembered(data_dir) == {"url": "http://127.0.0.1:9000", "token": first["token"]}
    Token.objects.all().delete()
    prepare(url=URL)
    assert remembered(data_dir)["token"] != first["token"]
    assert Token.objects.count() == 1


def test_a_log_in_to_another_server_is_left_alone(data_dir):
    elsewhere = {"url": "https://train.example.org", "token": "theirs"}
    (data_dir / "cli.json").write_text(json.dumps(elsewhere))
    prepare(url=URL)
    assert remembered(data_dir) == elsewhere


def test_a_database_of_a_newer_version_is_refused_before_it_is_touched():
    MigrationRecorder(connection).record_applied("operations", "0999_contract_the_future")
    with pytest.raises(CannotStart, match=r"newer trainops \(it has operations.0999_contract"):
        prepare()
    assert not User.objects.exists()


def test_a_database_that_a_newer_version_only_expanded_is_used():
    MigrationRecorder(connection).record_applied("operations", "0999_a_further_column")
    assert prepare().migrated == 0


def test_a_database_with_migrations_of_two_versions_is_refused():
    MigrationRecorder(connection).record_applied("operations", "0999_a_further_column")
    MigrationRecorder(connection).record_unapplied("workers", "0007_dataset_problem")
    with pytest.raises(CannotStart, match="misses 1 migrations of this version"):
        prepare()


def test_the_demo_is_one_operation_of_each_kind_and_submitted_once():
    from apps.operations.models import Operation

    first = prepare(demo=True)
    made = Operation.objects.all()
    assert {each.kind for each in made} == {name for name, each in KINDS.items() if each.demo}
    assert {each.owner.username for each in made} == {"admin"}
    assert all([tag.name for tag in each.tags.all()] == ["demo"] for each in made)
    assert prepare(demo=True).demo == first.demo == made.order_by("created_at")[0].pk
    assert made.count() == sum(bool(each.demo) for each in KINDS.values())
