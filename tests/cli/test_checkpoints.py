import hashlib
import json
import os

import pytest

from apps.checkpoints.models import Checkpoint
from apps.operations.lifecycle import State
from tests.api.saved import damage, saved
from tests.formats.conftest import Run, parse
from tests.formats.originals import original
from tests.formats.step_trainer import train
from tests.formats.test_rl_exchange import FITTING as RL_FITTING
from tests.operations.rows import in_state
from trainops.client.problems import ExitCode


@pytest.fixture
def operation(ana):
    return in_state(State.CANCELLED, ana)


@pytest.mark.slow
def test_they_are_listed_with_type_and_size(cli, operation):
    older, newer = saved(operation, step=10), saved(operation, step=20, type="periodic")
    shown = cli("checkpoints", "ls", operation.pk[-6:]).stdout
    assert older.pk in shown and newer.pk in shown
    assert "periodic" in shown and "76.8 kB" in shown and "healthy" in shown
    rows = cli("checkpoints", "ls", "-o", "json").json
    assert {row["checkpoint_id"] for row in rows} == {older.pk, newer.pk}
    assert cli("checkpoints", "ls", "--older-than-days", 1, "-o", "json").json == []


def test_verify_reads_every_byte(cli, operation):
    checkpoint = saved(operation)
    ran = cli("checkpoints", "verify", checkpoint.pk)
    assert ran.exit_code == ExitCode.OK
    assert ran.stdout.splitlines()[1].split()[:2] == [checkpoint.pk, "healthy"]
    damage(checkpoint)
    ran = cli("checkpoints", "verify", checkpoint.pk)
    assert ran.exit_code == ExitCode.FAILED
    assert ran.stdout.splitlines()[1].split()[:2] == [checkpoint.pk, "corrupted"]
    assert "altered: model.pt" in ran.stderr
    assert cli("checkpoints", "verify", checkpoint.pk, "-o", "json").json["health"] == "corrupted"


@pytest.mark.slow
def test_verify_of_an_operation_looks_at_each_of_its_checkpoints(cli, operation):
    ran = cli("checkpoints", "verify", operation.pk)
    assert ran.exit_code == ExitCode.NOT_FOUND and "has no checkpoints" in ran.stderr
    kept, damaged = saved(operation, step=10), saved(operation, step=20)
    assert cli("checkpoints", "verify", operation.pk[-6:]).exit_code == ExitCode.OK
    damage(damaged)
    ran = cli("checkpoints", "verify", operation.pk, "-o", "json")
    assert ran.exit_code == ExitCode.FAILED
    assert {each["checkpoint_id"]: each["health"] for each in ran.json} == {
        kept.pk: "healthy",
        damaged.pk: "corrupted",
    }


@pytest.mark.slow
def test_the_best_by_a_further_metric_is_named_by_it(cli, operation):
    operation.row.update(config=operation.config | {"monitors": {"val/Acc": "max"}})
    lines = [{"val/Acc": {"metric": value}} for value in (0.5, 0.9)]
    _, best = (saved(operation, step=n + 1, monitored=each) for n, each in enumerate(lines))
    shown = cli("checkpoints", "show", f"{operation.pk}:best:val/Acc", "-o", "json")
    assert shown.exit_code == ExitCode.OK, shown.stderr
    assert json.loads(shown.stdout)["checkpoint_id"] == best.pk
    assert json.loads(shown.stdout)["best_of"] == ["val/Acc"]
    listed = cli("checkpoints", "ls", operation.pk)
    assert listed.stdout.count("best val/Acc") == 1
    assert cli("checkpoints", "show", f"{operation.pk}:best:other").exit_code != ExitCode.OK


def test_the_newest_and_the_best_are_named_by_their_operation(cli, operation):
    best = saved(operation, step=10, metric=0.1)
    newest = saved(operation, step=20, type="periodic", metric=0.2)
    short = operation.pk[-6:]
    for name, expected in [(f"{short}:latest", newest), (f"{operation.pk}:best", best)]:
        assert cli("checkpoints", "show", name, "-o", "json").json["checkpoint_id"] == expected.pk
        assert expected.pk in cli("checkpoints", "verify", name).stdout
    assert cli("checkpoints", "pin", f"{short}:best").exit_code == ExitCode.OK
    assert Checkpoint.objects.get(pinned=True) == best
    assert cli("checkpoints", "rm", f"{short}:best", "--yes").exit_code == ExitCode.OK
    assert [each.pk for each in Checkpoint.objects.all()] == [newest.pk]
    ran = cli("checkpoints", "show", f"{short}:oldest")
    assert ran.exit_code == ExitCode.USAGE and f"allowed: {short}:latest" in ran.stderr


def test_show_of_one_names_its_files_and_its_state(cli, operation):
    checkpoint = saved(operation)
    shown = cli("checkpoints", "show", checkpoint.pk).stdout
    assert "model.pt" in shown and "BLAKE3" in shown and "epoch" in shown
    assert cli("checkpoints", "show", checkpoint.pk, "-o", "json").json["step"] == checkpoint.step


def test_a_resume_from_altered_bytes_is_a_conflict_and_changes_nothing(cli, operation):
    damage(saved(operation))
    ran = cli("resume", operation.pk)
    assert ran.exit_code == ExitCode.CONFLICT
    operation.refresh_from_db()
    assert operation.state == State.CANCELLED


def test_pin_and_unpin(cli, operation):
    checkpoint = saved(operation)
    assert cli("checkpoints", "pin", checkpoint.pk).exit_code == ExitCode.OK
    assert Checkpoint.objects.get().pinned
    assert "pinned" in cli("checkpoints", "ls").stdout
    assert cli("checkpoints", "unpin", checkpoint.pk, "-o", "json").json["pinned"] is False
    assert not Checkpoint.objects.get().pinned


def test_an_operation_with_one_checkpoint_names_it(cli, operation):
    only = saved(operation, step=10)
    short = operation.pk[-6:]
    assert cli("checkpoints", "pin", short).exit_code == ExitCode.OK
    assert Checkpoint.objects.get(pinned=True) == only
    saved(operation, step=20)
    ran = cli("checkpoints", "unpin", short)
    assert ran.exit_code == ExitCode.NOT_FOUND and f"{short!r}; allowed: a checkpoint" in ran.stderr
    assert Checkpoint.objects.get(pinned=True) == only


def test_rm_deletes_one(cli, operation):
    kept, gone = saved(operation, step=10), saved(operation, step=20)
    assert cli("checkpoints", "rm", gone.pk).exit_code == ExitCode.USAGE
    assert cli("checkpoints", "rm", gone.pk, "--yes").exit_code == ExitCode.OK
    assert Checkpoint.objects.get().pk == kept.pk


@pytest.mark.parametrize("typed", ["", "zzz", "../x", "training_20200101_000000_abcdef-a1"])
def test_an_unknown_one_is_not_found(cli, operation, typed):
    for command in ("verify", "show", "pin", "rm"):
        extra = ["--yes"] if command == "rm" else []
        assert cli("checkpoints", command, typed, *extra).exit_code == ExitCode.NOT_FOUND


@pytest.mark.slow
def test_gc_says_what_would_go_and_asks_before_it_goes(cli, operation, ana):
    kept, old = saved(operation, step=10), saved(operation, step=20, type="periodic")
    ran = cli("checkpoints", "gc", "--dry-run", "--older-than-days", 0)
    assert ran.exit_code == ExitCode.FAILED and "admin" in ran.stderr  # an operator may not
    ana.is_superuser = True
    ana.save()
    Checkpoint.objects.filter(pk=kept.pk).update(pinned=True)
    shown = cli("checkpoints", "gc", "--dry-run", "--older-than-days", 0).stdout
    assert shown.startswith("Would delete 1 checkpoints and 0 directories without a database row")
    assert cli("checkpoints", "gc", "--older-than-days", 0).exit_code == ExitCode.USAGE
    assert Checkpoint.objects.count() == 2
    ran = cli("checkpoints", "gc", "--older-than-days", 0, "--yes", "-o", "json")
    assert (ran.json["dry_run"], ran.json["num_checkpoints"]) == (False, 1)
    assert [each.pk for each in Checkpoint.objects.all()] == [kept.pk] != [old.pk]
    assert cli("checkpoints", "gc").stdout.startswith("Would delete 0 checkpoints")


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_digest_that_another_tool_has_is_written_beside_its_file(cli, tmp_path):
    described = tmp_path / "operation.yaml"
    config = {**RL_FITTING, "environment_steps": 260}
    described.write_text(json.dumps({"kind": "rl", "config": config}))
    ran = cli("checkpoints", "import", original("rl", tmp_path), described)
    assert ran.exit_code == ExitCode.OK, ran.stderr
    operation_id, target = ran.stdout.strip(), tmp_path / "out.pt"
    ran = cli("checkpoints", "export", operation_id, "--format", "rl", "-o", target)
    assert ran.exit_code == ExitCode.OK, ran.stderr
    assert (tmp_path / "out.pt.sha256").read_text() == f"{sha256(target.read_bytes())}\n"
    ran = cli("checkpoints", "export", operation_id, "--format", "training", "-o", target)
    assert ran.exit_code == ExitCode.USAGE
    assert f"{operation_id} can only be exported as rl, not as training" in ran.stderr


def sha256(content):
    return hashlib.sha256(content).hexdigest()


@pytest.mark.slow
def test_another_tools_file_comes_in_and_goes_out(cli, tmp_path, monkeypatch):
    known = os.environ["TRAINOPS_RECIPES"]
    monkeypatch.setenv("TRAINOPS_RECIPES", f"{known},tests.formats.recipe:RECIPE")
    described = tmp_path / "operation.yaml"
    described.write_text("kind: training\nconfig: {recipe: foreign, batch_size: 8, epochs: 2}\n")
    file = original("training", tmp_path)
    ran = cli("checkpoints", "import", file, described, "--set", "optimizer=adamw")
    assert ran.exit_code == ExitCode.OK, ran.stderr
    operation_id = ran.stdout.strip()
    assert "Imported training.pt, epoch 0, step 25; " in ran.stderr
    assert Checkpoint.objects.get().operation_id == operation_id
    target = tmp_path / "out.ckpt"
    ran = cli("checkpoints", "export", operation_id, "-o", target)
    assert ran.stdout.startswith(f"{target}: training, ")
    assert ran.stdout.endswith(f", the {Checkpoint.objects.get()}\n")
    assert cli("checkpoints", "verify", target).exit_code == ExitCode.OK
    ran = cli("checkpoints", "export", operation_id, "-o", tmp_path / "not" / "there.ckpt")
    assert ran.exit_code == ExitCode.USAGE and "No such file" in ran.stderr
    ran = cli("checkpoints", "import", file)
    assert ran.exit_code == ExitCode.USAGE and "OPERATION.yaml is required" in ran.stderr
    ran = cli("checkpoints", "import", described, described)
    assert ran.exit_code == ExitCode.USAGE and "archive" in ran.stderr
    ran = cli("checkpoints", "import", file, described, "--set", "epochs=-1")
    assert ran.exit_code == ExitCode.USAGE and "--set epochs=-1" in ran.stderr


@pytest.mark.slow
def test_a_file_whose_digest_does_not_match_begins_nothing(cli, tmp_path, monkeypatch):
    known = os.environ["TRAINOPS_RECIPES"]
    monkeypatch.setenv("TRAINOPS_RECIPES", f"{known},tests.formats.recipe:RECIPE")
    described = tmp_path / "operation.yaml"
    described.write_text("kind: training\nconfig: {recipe: foreign, batch_size: 8, epochs: 2}\n")
    file = original("training", tmp_path)
    digest = tmp_path / "training.pt.sha256"
    digest.write_text(f"{'0' * 64}\n")
    ran = cli("checkpoints", "import", file, described, "--set", "optimizer=adamw")
    assert ran.exit_code != ExitCode.OK and "SHA-256" in ran.stderr
    assert not Checkpoint.objects.exists()
    digest.unlink()
    ran = cli("checkpoints", "import", file, described, "--set", "optimizer=adamw")
    assert ran.exit_code == ExitCode.OK, ran.stderr


@pytest.mark.slow
def test_directories_come_in(cli, tmp_path, monkeypatch):
    """One of another tool's, one of ours, and the furthest of several of ours."""
    known = os.environ["TRAINOPS_RECIPES"]
    monkeypatch.setenv("TRAINOPS_RECIPES", f"{known},tests.formats.recipe:RECIPE")
    described = tmp_path / "operation.yaml"
    described.write_text("kind: training\nconfig: {recipe: foreign, batch_size: 8, epochs: 2}\n")
    train(tmp_path / "theirs", epochs=1)
    ran = cli(
        "checkpoints", "import", tmp_path / "theirs", described,
        "--set", "optimizer=adamw", "--set", "weight_decay=0.01", "--set", "scheduler=none",
    )  # fmt: skip
    assert ran.exit_code == ExitCode.OK, ran.stderr
    assert "Taken: last_checkpoint" in ran.stderr
    assert "Imported last_checkpoint, epoch 1 (step 38); " in ran.stderr

    run = Run(parse())
    older, newer = (run.until(step).save(tmp_path / "op_1") for step in (5, 12))
    ran = cli("checkpoints", "import", older)
    assert ran.exit_code == ExitCode.OK, ran.stderr
    assert f"Imported {older.name}, epoch 0, step 5" in ran.stderr
    ran = cli("checkpoints", "import", tmp_path / "op_1", "--set", "threads=1")
    assert ran.exit_code == ExitCode.OK, ran.stderr
    assert f"Taken: {newer.name}" in ran.stderr and ", step 12" in ran.stderr
    assert Checkpoint.objects.get(operation_id=ran.stdout.strip()).step == 12
    ran = cli("checkpoints", "import", older, "--set", "batch_size=4")
    assert ran.exit_code == ExitCode.USAGE and "a fork keeps 8" in ran.stderr
    assert cli("checkpoints", "verify", older, "--strict").exit_code == ExitCode.OK
