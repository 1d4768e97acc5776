import io
import json
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.operations.api.estimates import EstimateSerializer
from apps.operations.lifecycle import State
from apps.operations.models import Attempt, LogChunk, Operation, Tag
from apps.workers import registry
from tests.api import forks
from tests.api.saved import CHANGED, CHANGED_FILE, saved
from tests.operations.rows import in_state, submitted
from tests.thinning import quick_some
from trainops.cli import looks
from trainops.cli.out import Out
from trainops.client.problems import ExitCode


def test_run_prints_the_id_and_the_commands_that_come_next(cli, wish, environment):
    ran = cli("run", wish)
    operation = Operation.objects.get()
    assert ran.exit_code == ExitCode.OK
    assert ran.stdout == f"{operation.pk}\n"
    assert f"follow  python3 -m trainops watch {operation.pk}\n" in ran.stderr
    assert f"cancel  python3 -m trainops cancel {operation.pk}\n" in ran.stderr
    assert f"page    {environment['TRAINOPS_URL']}/operations/{operation.pk}/\n" in ran.stderr
    assert operation.config["epochs"] == 2
    assert operation.owner.username == "ana"


def test_run_takes_changes_from_the_command_line(cli, wish):
    ran = cli(
        "run", wish, "--set", "epochs=5", "--set", "parameters.dropout=0.5", "--name", "Other",
        "--tag", "one", "--tag", "two", "--queue", "a100", "-o", "json",
    )  # fmt: skip
    assert ran.json["name"] == "Other"
    assert ran.json["tags"] == ["one", "two"]
    assert ran.json["queue"] == "a100"
    assert ran.json["config"]["epochs"] == 5
    assert ran.json["config"]["parameters"]["dropout"] == 0.5


def test_config_prints_a_file_that_run_takes(cli, wish, tmp_path):
    cli("run", wish, "--set", "epochs=5", "--tag", "one")
    first = Operation.objects.get()
    file = tmp_path / "again.yaml"
    file.write_text(cli("config", first.pk).stdout)
    assert cli("run", file).exit_code == ExitCode.OK
    again = Operation.objects.exclude(pk=first.pk).get()
    assert (again.config_given, again.name) == (first.config_given, first.name)
    assert [tag.name for tag in again.tags.all()] == ["one"]
    assert cli("config", first.pk, "-o", "json").json == first.config


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--set", "epoch=5"],
            "--set epoch=5: epoch: there is no such field (did you mean epochs?)",
        ),
        (["--set", "epochs=0"], "--set epochs=0: epochs: got 0"),
        (["--set", "recipe=no"], "--set recipe=no: recipe: got 'no'; there is no such recipe"),
        (["--set", "parameters.x=1"], "--set parameters.x=1: parameters.x: there is no such field"),
        (["--kind", "cooking"], "wish.yaml:1: kind: 'cooking' is not a kind"),
        (["--queue", "a 100"], "queue: at most 64 letters, digits, '_', '.' and '-'"),
        (["--set", "epochs"], "--set epochs: allowed: PATH=VALUE"),
    ],
)
def test_a_bad_config_is_reported_with_its_place_and_nothing_is_created(
    cli, wish, arguments, message
):
    ran = cli("run", wish, *arguments)
    assert ran.exit_code == ExitCode.USAGE
    assert message in ran.stderr
    assert ran.stdout == ""
    assert not Operation.objects.exists()


def test_a_wrong_field_of_the_file_is_reported_with_its_line(cli, wish):
    wish.write_text(wish.read_text().replace("epochs: 2", "epochs: many"))
    ran = cli("run", wish)
    assert ran.exit_code == ExitCode.USAGE
    assert "wish.yaml:5: epochs: got 'many'" in ran.stderr


def test_ls_shows_the_newest_first_and_says_that_there_are_more(cli, ana):
    ids = [submitted(ana).pk for _ in range(3)]
    ran = cli("ls", "--limit", 2)
    shown = [line.split()[0] for line in ran.stdout.splitlines()[1:]]
    assert shown == [each[-6:] for each in reversed(ids[1:])]
    assert "--limit 10" in ran.stderr
    assert cli("ls", "-q").stdout.splitlines() == [*reversed(ids)]


def test_ls_shows_the_monitored_metric_first_and_times_by_their_age(cli, ana):
    operation = submitted(ana, monitor="val_accuracy")
    operation.row.update(
        metrics={"val_loss": 0.5, "val_accuracy": 0.75, "epoch": 2},
        created_at=timezone.now() - timedelta(minutes=3),
    )
    head, row = cli("ls").stdout.splitlines()
    assert row[head.index("OBJECTIVE") :].startswith("val_accuracy 0.75  ")
    assert row[head.index("METRICS") :].startswith("val_loss 0.5 ")
    assert row.endswith("3 min ago")
    (data,) = cli("ls", "-o", "json").json
    assert (data["monitor"], data["created_at"][:2]) == ("val_accuracy", "20")


@pytest.mark.slow
def test_ls_filters(cli, ana, django_user_model):
    mine, other = submitted(ana), submitted(django_user_model.objects.create_user("ben"))
    cancelled = in_state(State.CANCELLED, ana)
    for arguments, found in [
        (["--mine"], {mine.pk, cancelled.pk}),
        (["--state", "cancelled"], {cancelled.pk}),
        (["--search", other.pk], {other.pk}),
        (["--resumable"], set()),
        (["--recipe", "tabular"], set()),
        (["--reason", "stalled"], set()),
        (["--recipe", "digits"], {mine.pk, other.pk, cancelled.pk}),
        (["--kind", "training"], {mine.pk, other.pk, cancelled.pk}),
    ]:
        ran = cli("ls", *arguments, "-o", "json")
        assert {row["id"] for row in ran.json} == found, arguments


def test_an_unknown_state_is_a_usage_error_that_names_those_there_are(cli):
    ran = cli("ls", "--state", "sleeping")
    assert ran.exit_code == ExitCode.USAGE
    assert "RUNNING" in ran.stderr


def test_an_empty_list_says_what_to_do(cli):
    ran = cli("ls")
    assert (ran.exit_code, ran.stdout) == (ExitCode.OK, "")
    assert "run examples/digits.yaml" in ran.stderr
    assert cli("ls", "-o", "json").json == []


def test_a_list_without_matches_does_not_say_that_there_are_no_operations(cli, ana):
    in_state(State.COMPLETED, owner=ana)
    for wanted in (["state:failed"], ["--mine", "--search", "other"]):
        ran = cli("ls", *wanted)
        assert ran.stderr.strip() == "No operation matches."


def test_ls_and_show_say_why_an_operation_needs_attention_and_a_note_acknowledges_it(cli, ana):
    stuck, other = submitted(ana), submitted(ana)
    stuck.row.update(concerns="STUCK,CORRUPTED")
    head, row = cli("ls", "--attention").stdout.splitlines()
    assert row[head.index("WHY") :].startswith("stuck, corrupted ")
    assert "WHY" not in cli("ls").stdout
    shown = " ".join(cli("show", stuck.pk).stdout.split())
    assert (
        "attention no available worker, or no share, has what it waits for. Start a worker" in shown
    )
    assert cli("edit", stuck.pk, "--acknowledge", "--because", "a node is ordered").exit_code == 0
    (row,) = (each for each in cli("ls", "-o", "json").json if each["id"] == stuck.pk)
    assert (row["needs_attention"], row["acknowledgement"]) == (False, "a node is ordered")
    other.row.update(concerns="STUCK")
    acknowledged = cli("bulk", "acknowledge", "is:attention", "--because", "known", "--yes")
    assert acknowledged.exit_code == 0, acknowledged.stderr
    other.refresh_from_db()
    assert other.acknowledgement == "known"
    assert cli("ls", "--attention").stdout == ""


def test_bulk_edits_tags_and_project(cli, ana):
    one, other = submitted(ana), submitted(ana)
    Tag.objects.create(operation=one, name="night")
    command = "bulk", "edit", "tag:night", "--tag", "a", "--untag", "night", "--project", "lungs"
    assert cli(*command, "--dry-run").exit_code == 0
    one.refresh_from_db()
    assert one.project == ""
    ran = cli(*command, "--yes")
    assert ran.exit_code == 0, ran.stderr
    one.refresh_from_db()
    other.refresh_from_db()
    assert [tag.name for tag in one.tags.all()] == ["a"]
    assert (one.project, other.project) == ("lungs", "")
    assert cli("bulk", "edit", "tag:a", "--yes").exit_code == 2


def test_ls_takes_a_query(cli, ana):
    found = submitted(ana)
    found.row.update(attempt=1, metrics={"val_loss": 0.05})
    assert [row["id"] for row in cli("ls", "val_loss<0.1", "kind:training", "-o", "json").json] == [
        found.pk
    ]
    assert cli("ls", "val_loss>0.1 -tag:x", "-o", "json").json == []
    ran = cli("ls", "stat:failed")
    assert ran.exit_code == 2 and "'stat:failed' (character 1)" in ran.stderr


def test_edit_changes_what_it_is_given(cli, ana):
    found = submitted(ana)
    ran = cli("edit", found.pk, "--name", "new", "--tag", "a", "--tag", "b", "--favourite")
    assert "Saved 'new'." in ran.stdout
    after = cli("edit", found.pk, "--untag", "a", "--notes", "why", "-o", "json").json
    assert (after["name"], after["tags"], after["notes"]) == ("new", ["b"], "why")
    assert after["is_favourite"] and after["revision"] == 2
    ran = cli("edit", found.pk, "--archive")
    assert ran.exit_code == 4 and "cancel it first" in ran.stderr
    ran = cli("edit", found.pk)
    assert ran.exit_code == 2 and "allowed: --name, --tag" in ran.stderr


def test_show_tells_how_it_stands_and_what_can_be_done(cli, ana):
    operation = in_state(State.RUNNING, ana)
    operation.row.update(
        step=30,
        total_steps=60,
        place="2 of 4 epochs",
        metrics={"val_loss": 0.25},
        steps_per_second=2,
    )
    shown = cli("show", operation.pk).stdout
    for piece in ("RUNNING", "50 % · 2 of 4 epochs", "15 s", "val_loss 0.25", "cancel, kill"):
        assert piece in shown
    assert cli("show", operation.pk, "-o", "json").json["percent"] == 50


def test_show_tells_what_it_waits_for(cli, ana):
    operation = submitted(ana, queue="a100")
    registry.register(worker_id="worker-1", kinds=["training"], labels=["t4"])
    shown = cli("show", operation.pk).stdout
    assert "No worker has the label a100; available labels: t4." in shown
    assert "waits for" not in cli("show", in_state(State.COMPLETED, ana).pk).stdout


@pytest.mark.slow
def test_an_id_may_be_shortened_to_what_fits_one(cli, ana):
    operation, other = submitted(ana), submitted(ana)
    assert cli("show", operation.pk[-6:], "-o", "json").json["id"] == operation.pk
    assert cli("show", other.pk[:-1], "-o", "json").json["id"] == other.pk
    both = cli("show", "op_training")
    assert both.exit_code == ExitCode.USAGE
    assert operation.pk in both.stderr and other.pk in both.stderr


@pytest.mark.parametrize(
    "typed",
    quick_some(["zzz", "op_training_20200101_000000_abcdef", "../../x", "%", ""], every=3),
)
def test_an_id_that_fits_none_is_not_found(cli, ana, typed):
    submitted(ana)
    for command in ("show", "watch", "logs", "cancel", "resume", "rm"):
        assert cli(command, typed).exit_code == ExitCode.NOT_FOUND, command


def test_what_waits_is_cancelled_at_once(cli, ana):
    operation = submitted(ana)
    ran = cli("cancel", operation.pk)
    assert ran.exit_code == ExitCode.OK
    assert ran.stdout.startswith("CANCELLED")
    operation.refresh_from_db()
    assert operation.state == State.CANCELLED


def test_events_tell_who_did_what_and_why(cli, ana):
    operation = submitted(ana)
    cli("cancel", operation.pk)
    shown = cli("events", operation.pk).stdout
    assert "SUBMITTED" in shown and "not running" in shown
    assert {row["actor"] for row in cli("events", operation.pk, "-o", "json").json} == {"ana"}


def test_the_receipt_of_the_latest_resume(cli, ana):
    operation = in_state(State.RUNNING, ana)
    first = {"step": 0, "checkpoint": None, "exact": True, "items": []}
    lines = [
        {"part": "model", "restored": True, "exact": True, "note": ""},
        {"part": "threads", "restored": False, "exact": False, "note": "was 1, is 2"},
    ]
    second = {"step": 40, "checkpoint": "0040-final", "exact": False, "items": lines}
    Attempt.objects.filter(operation=operation).delete()
    for number, receipt in enumerate((first, second, first), start=1):
        Attempt.objects.create(operation=operation, number=number, receipt=receipt)
    shown = cli("receipt", operation.pk)
    assert shown.exit_code == ExitCode.OK, shown.stderr
    assert "was 1, is 2" in shown.stdout
    assert "Attempt 2 continued not exactly from 0040-final, step 40." in shown.stderr
    assert cli("receipt", operation.pk, "-o", "json").json == second
    refused = cli("receipt", operation.pk, "--attempt", "3")
    assert refused.exit_code == ExitCode.NOT_FOUND
    assert "attempt 3 has not resumed from a checkpoint" in refused.stderr


def test_a_second_cancel_is_a_conflict(cli, ana):
    operation = in_state(State.RUNNING, ana)
    assert cli("cancel", operation.pk).exit_code == ExitCode.OK
    again = cli("cancel", operation.pk)
    assert again.exit_code == ExitCode.CONFLICT
    assert "already requested" in again.stderr
    now = cli("cancel", operation.pk, "--now", "-o", "json")
    assert now.json["stop_requested"] == "kill"


def test_resume_says_from_where(cli, ana):
    operation = in_state(State.CANCELLED, ana)
    saved(operation, step=30, epoch=2)
    ran = cli("resume", operation.pk)
    assert ran.exit_code == ExitCode.OK, ran.stderr
    assert ran.stdout == "Training resumed from epoch 2\n"
    assert f"watch {operation.pk}" in ran.stderr
    assert cli("resume", operation.pk).exit_code == ExitCode.CONFLICT


def test_a_resume_may_accept_that_it_is_not_exact(cli, ana):
    operation = in_state(State.CANCELLED, ana)
    saved(operation, step=30, epoch=2)
    assert cli("resume", operation.pk, "--accept-inexact").exit_code == ExitCode.OK
    operation.refresh_from_db()
    assert operation.accepts_inexact


@pytest.fixture
def changed(ana):
    """A cancelled operation whose checkpoint is of other code than that of the server."""
    operation = in_state(State.CANCELLED, ana)
    saved(operation, step=30, epoch=2, environment=CHANGED)
    return operation


def test_without_a_terminal_a_resume_under_changed_code_names_the_files_and_the_option(
    cli, changed
):
    refused = cli("resume", changed.pk)
    assert refused.exit_code == ExitCode.CONFLICT
    assert CHANGED_FILE in refused.stderr
    assert f"resume {changed.pk} --accept-inexact" in refused.stderr
    assert changed.row.get().state == State.CANCELLED
    assert cli("resume", changed.pk, "--accept-inexact").exit_code == ExitCode.OK
    assert changed.row.get().state == State.RESUMING


@pytest.mark.parametrize(("typed", "state"), [("n", State.CANCELLED), ("y", State.RESUMING)])
def test_on_a_terminal_a_resume_under_changed_code_asks(cli, changed, monkeypatch, typed, state):
    monkeypatch.setattr(Out, "can_ask", True)
    ran = cli("resume", changed.pk, input=f"{typed}\n")
    assert CHANGED_FILE in ran.stderr and "Resume anyway?" in ran.stderr
    assert changed.row.get().state == state
    assert (ran.exit_code == ExitCode.OK) == (state == State.RESUMING)


@pytest.fixture
def begun(monkeypatch, changed):
    """Forks of `changed` that were begun, with no files here."""
    constant = changed.config | {"scheduler": "none"}
    changed.row.update(config=constant, config_given=constant)
    return forks.begun(monkeypatch)


@pytest.mark.parametrize(
    "wanted", [("fork", "--set", "epochs=70"), ("extend", "--to", "70")], ids=["fork", "extend"]
)
def test_without_a_terminal_a_fork_under_changed_code_names_the_files_and_the_option(
    cli, changed, begun, wanted
):
    verb, *options = wanted
    shown = cli(verb, changed.pk, *options, "--preview", "--accept-inexact")
    assert CHANGED_FILE in shown.stdout and "weights of a training" not in shown.stdout
    refused = cli(verb, changed.pk, *options)
    assert refused.exit_code == ExitCode.CONFLICT
    assert CHANGED_FILE in refused.stderr
    assert f"{verb} {changed.pk} {' '.join(options)} --accept-inexact" in refused.stderr
    assert Operation.objects.count() == 1
    ran = cli(verb, changed.pk, *options, "--accept-inexact")
    assert ran.exit_code == ExitCode.OK, ran.stderr
    assert len(begun) == 1 and Operation.objects.count() == 2


@pytest.mark.parametrize(("typed", "number"), [("n", 0), ("y", 1)])
def test_on_a_terminal_a_fork_under_changed_code_asks(
    cli, changed, begun, monkeypatch, typed, number
):
    monkeypatch.setattr(Out, "can_ask", True)
    ran = cli("extend", changed.pk, "--to", "70", input=f"{typed}\n")
    assert CHANGED_FILE in ran.stderr and "Submit anyway?" in ran.stderr
    assert len(begun) == number
    assert (ran.exit_code == ExitCode.OK) == bool(number)


def test_a_preview_says_what_would_happen_and_submits_nothing(cli, ana):
    operation = in_state(State.CANCELLED, ana)
    constant = operation.config | {"scheduler": "none"}
    operation.row.update(config=constant, config_given=constant)
    saved(operation, step=30, epoch=2)
    ran = cli("extend", operation.pk, "--to", "70", "--preview")
    assert ran.exit_code == ExitCode.OK, ran.stderr
    assert "It ends with the weights of a training submitted with 70 epochs." in ran.stdout
    assert f"epochs: {operation.config['epochs']} → 70" in ran.stdout
    shown = cli("warm-start", operation.pk, "--set", "batch_size=8", "--preview", "-o", "json")
    assert [each["field"] for each in shown.json["changes"]] == ["batch_size"]
    refused = cli("fork", operation.pk, "--set", "batch_size=8", "--preview")
    assert refused.exit_code == ExitCode.USAGE and "a fork keeps" in refused.stderr
    assert Operation.objects.count() == 1


def test_a_preview_of_a_resume_says_what_would_happen(cli, ana):
    operation = in_state(State.CANCELLED, ana)
    chosen = saved(operation, step=10, epoch=1)
    saved(operation, step=30, epoch=2)
    assert "It continues from epoch 2" in cli("resume", operation.pk, "--preview").stdout
    ran = cli("resume", operation.pk, "--checkpoint", chosen.pk, "--preview", "-o", "json")
    assert (ran.json["checkpoint_id"], ran.json["step"]) == (chosen.pk, 10)
    assert operation.row.get().state == State.CANCELLED


def test_a_preview_of_a_file_says_where_it_could_run_and_for_how_long(cli, ana, tmp_path):
    earlier = in_state(State.COMPLETED, ana)
    now = timezone.now()
    times = {"started_at": now, "finished_at": now + timedelta(seconds=30)}
    earlier.row.update(**times, attempt=1, checkpoint_bytes=2_000_000)
    file = tmp_path / "operation.yaml"
    file.write_text(json.dumps({"kind": earlier.kind, "config": earlier.config}))
    ran = cli("run", file, "--preview")
    assert ran.exit_code == ExitCode.OK, ran.stderr
    assert "No worker is running." in ran.stdout
    assert "About 30 s, checkpoints of 2.0 MB (median of earlier operations: 1)" in ran.stdout
    assert cli("run", file, "--preview", "-o", "json").json["seconds"] == 30
    refused = cli("run", file, "--set", "epochs=many", "--preview")
    assert refused.exit_code == ExitCode.USAGE and "--set epochs=many" in refused.stderr
    assert Operation.objects.count() == 1


def test_a_preview_of_a_file_works_with_servers_whose_estimates_have_no_notes(
    cli, ana, tmp_path, monkeypatch
):
    as_now = EstimateSerializer.to_representation

    def as_before(self, found):
        return {name: each for name, each in as_now(self, found).items() if name != "notes"}

    monkeypatch.setattr(EstimateSerializer, "to_representation", as_before)
    file = tmp_path / "operation.yaml"
    file.write_text(json.dumps({"kind": "training", "config": {"recipe": "digits"}}))
    ran = cli("run", file, "--preview")
    assert ran.exit_code == ExitCode.OK, ran.stderr
    assert "No worker is running." in ran.stdout


def test_a_resume_without_a_checkpoint_is_not_found_and_says_why(cli, ana):
    ran = cli("resume", in_state(State.FAILED, ana).pk)
    assert ran.exit_code == ExitCode.NOT_FOUND
    assert "Possible reason: It ended before its first checkpoint." in ran.stderr


def test_rm_asks_and_without_a_terminal_it_does_nothing(cli, ana):
    operation = in_state(State.FAILED, ana)
    ran = cli("rm", operation.pk)
    assert ran.exit_code == ExitCode.USAGE
    assert "--yes" in ran.stderr
    assert Operation.objects.exists()
    assert cli("rm", operation.pk, "--yes").exit_code == ExitCode.OK
    assert not Operation.objects.exists()


def test_rm_of_what_runs_is_a_conflict(cli, ana):
    assert cli("rm", in_state(State.RUNNING, ana).pk, "-y").exit_code == ExitCode.CONFLICT


def test_what_belongs_to_another_user_is_refused(cli, django_user_model):
    ran = cli("cancel", submitted(django_user_model.objects.create_user("ben")).pk)
    assert ran.exit_code == ExitCode.FAILED
    assert "belongs to ben" in ran.stderr


def test_logs_are_printed_as_they_were_written(cli, ana):
    operation = submitted(ana)
    for attempt, text in ((1, "one\n"), (1, "tw"), (2, "o\nthree\n")):
        LogChunk.objects.create(operation=operation, attempt=attempt, text=text)
    assert cli("logs", operation.pk).stdout == "one\ntwo\nthree\n"
    assert cli("logs", operation.pk, "--attempt", 2).stdout == "o\nthree\n"
    assert [chunk["text"] for chunk in cli("logs", operation.pk, "-o", "json").json] == [
        "one\n", "tw", "o\nthree\n",
    ]  # fmt: skip


def test_logs_are_searched_by_text_level_and_time(cli, ana):
    operation = submitted(ana)
    text = "one\nWARNING two\nthree\nERROR four\nfive\n"
    LogChunk.objects.create(operation=operation, attempt=1, text=text)
    assert cli("logs", operation.pk, "--level", "warning").stdout == "WARNING two\nERROR four\n"
    around = cli("logs", operation.pk, "--grep", "warn", "-C", 1).stdout
    assert around == "one\nWARNING two\nthree\n"
    far = cli("logs", operation.pk, "--grep", "o", "-C", 0, "-o", "json").json
    assert [line["text"] for line in far] == ["one", "WARNING two", "ERROR four"]
    assert cli("logs", operation.pk, "--since", "2h").stdout.startswith("one\n")
    assert cli("logs", operation.pk, "--since", "2099-01-01").stdout == ""
    refused = cli("logs", operation.pk, "--since", "soon")
    assert refused.exit_code == ExitCode.USAGE and "got 'soon'; allowed: 90s" in refused.stderr


def test_a_long_log_is_printed_whole(cli, ana):
    operation = submitted(ana)
    LogChunk.objects.bulk_create(
        LogChunk(operation=operation, attempt=1, text=f"{number}\n" * 1000) for number in range(200)
    )
    assert len(cli("logs", operation.pk).stdout.splitlines()) == 200_000


def test_names_cannot_play_tricks_on_a_terminal(cli, ana):
    operation = submitted(ana)
    operation.row.update(name="\x1b[2J[red]evil\x07")
    for command in (["ls"], ["show", operation.pk]):
        shown = cli(*command).stdout
        assert "\x1b" not in shown and "\x07" not in shown
        assert "[red]evil" in shown


def test_a_narrow_terminal_shows_whole_ids_and_fewer_columns_and_says_which(monkeypatch, capsys):
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Out()
    row = ["op_training_20241213_143022_abc123", looks.cell("name " * 20), "FAILED", "1 h ago"]
    columns = ["ID", "NAME", "STATE", "CREATED"]
    out.table(columns, [row], narrow=columns[:3], elastic="NAME")
    header, line = screen.getvalue().splitlines()
    assert row[0] in line and "FAILED" in line and "…" in line
    assert "CREATED" not in header
    assert capsys.readouterr().err == "Not shown on less than 130 columns: CREATED\n"


def test_ls_lists_groups(cli, ana):
    for state in (State.FAILED, State.COMPLETED):
        in_state(state, ana)
    ran = cli("ls", "--group-by", "owner")
    assert ran.stdout.splitlines()[1].split()[:4] == ["ana", "2", "1", "completed,"]
    assert "owner:ana" in ran.stdout
    found = cli("ls", "state:failed", "--group-by", "kind", "-o", "json").json
    assert [(each["value"], each["num_operations"]) for each in found] == [("training", 1)]
    refused = cli("ls", "--group-by", "val_loss")
    assert refused.exit_code == ExitCode.USAGE and "allowed: study" in refused.stderr
