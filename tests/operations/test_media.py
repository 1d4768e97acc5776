"""What recipes log: numbers are points; media are kept and retired as points, thinned, deleted."""

import random
from contextlib import suppress

import pytest

from apps.operations.attempts import branches
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.errors import NotAllowed
from apps.operations.models import LogChunk, Media, MetricPoint, Operation
from apps.operations.models.media import MediaRetention
from apps.operations.requests import deletion, services
from tests.operations import rows
from tests.operations.attempts import Running, media_of, run, submit
from tests.operations.test_supervisor import curve, weights
from tests.waiting import wait_until
from trainops.media import Table
from trainops.media.items import MediaItem
from trainops.process.protocol import MediaLogged

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.database,
    pytest.mark.postgres,
    pytest.mark.slow,
]
GIVEN = {"epochs": 4, "log_every_steps": 1}
NUMBERS = {
    "mean": list(range(1, 17)), "train_mean": list(range(1, 17)), "validated_mean": [4, 8, 12, 16],
}  # fmt: skip
OFTEN = {"checkpoint": {"every_steps": 2}}


def continued(runtime, operation, person):
    """Run attempts until the operation has ended; a killed one is continued at once."""
    for _ in range(40):
        operation.row.update(not_before=None, restarts_used=0)
        operation = run(runtime, operation)
        if operation.state in ("COMPLETED", "FAILED"):
            return operation
        if operation.state == "CANCELLED":
            services.resume(operation_id=operation.pk, actor=person)
    raise AssertionError("it does not end")


def require_whole(runtime, operation):
    whole = run(runtime, submit(media=True, **GIVEN))
    assert operation.state == whole.state == "COMPLETED"
    assert weights(operation) == weights(whole)
    assert curve(operation) == curve(whole)
    steps = {name: [step for each, step, _ in curve(whole) if each == name] for name in NUMBERS}
    assert steps == NUMBERS
    assert media_of(operation) == media_of(whole)
    assert len(media_of(whole)) == 16 * 3 + 4 * 3


def test_logging_changes_no_result(runtime):
    plain, logging = run(runtime, submit(**GIVEN)), run(runtime, submit(media=True, **GIVEN))
    assert weights(plain) == weights(logging)
    assert plain.result["final"] == logging.result["final"]
    assert not media_of(plain)
    assert {name for name, *_ in media_of(logging)} == {
        "inputs", "outputs", "validated", "signs", "sound",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize(
    "where",
    [{"at": 6}, {"validation_at": 6}],
    ids=lambda where: "-".join(f"{name}-{at}" for name, at in where.items()),
)
def test_killed_within_what_is_logged_again_and_again(runtime, person, where):
    """Each process dies right after it has logged, before that is reported."""
    operation = submit("kill", media=True, step_seconds=0.1, **where, **GIVEN, **OFTEN)
    operation = continued(runtime, operation, person)
    assert operation.attempt > 2
    assert Media.objects.filter(operation=operation).exclude(retired_by=None).exists() or (
        "validation_at" in where
    )
    require_whole(runtime, operation)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("seed", range(3))
def test_stopped_twice_at_drawn_moments(runtime, person, seed):
    rng = random.Random(seed)  # noqa: S311
    operation = submit(media=True, step_seconds=0.03, validation_seconds=0.03, **GIVEN, **OFTEN)
    for at in sorted(rng.sample(range(2, 15), 2)):
        running = Running(runtime, operation)
        (held,) = wait_until(runtime.slots.all)
        running.until_step(at)
        how = rng.choice([Operation.Stop.KILL, Operation.Stop.CANCEL])
        if how == Operation.Stop.CANCEL:
            with suppress(NotAllowed):  # it has just ended
                services.cancel(operation_id=operation.pk, actor=person)
        wait_until(operation.checkpoints.exists)
        held.stop = how
        operation = running.ended()
        if operation.state == "COMPLETED":
            break
        services.resume(operation_id=operation.pk, actor=person)
    require_whole(runtime, continued(runtime, operation, person))


@pytest.mark.slow
def test_a_resume_that_begins_with_the_evaluation_keeps_what_was_logged_before_it(runtime, person):
    """Step 4 was computed, its evaluation was not: only the latter is logged again."""
    operation = submit(media=True, validation_seconds=0.8, **GIVEN)
    running = Running(runtime, operation)
    wait_until(lambda: "of the validation" in services.get(operation.pk).place)
    services.cancel(operation_id=operation.pk, actor=person)
    running.held.stop = Operation.Stop.CANCEL
    operation = running.ended()
    assert {position for _, position, *_ in media_of(operation)} == {3, 5, 7, 8}
    services.resume(operation_id=operation.pk, actor=person)
    operation = continued(runtime, operation, person)
    (second,) = operation.attempts.filter(number=2)
    assert (second.from_step, second.measured_to) == (4, 3)
    require_whole(runtime, operation)


def item(step, *, name="x", index=0, is_early=False, size=1):
    content = Table(["n"], [["y" * size]]).encode()
    return MediaItem(step, is_early, name, index, "table", "", content)


def write(operation, items, *, attempt=1, steps=5, num_bytes=10**6, names=3):
    written = [Media.of(each, operation.pk, attempt, 0.0) for each in items]
    return Media.write(operation.pk, written, MediaRetention(steps, num_bytes, names))


def kept(operation, name="x"):
    found = Media.objects.filter(operation=operation, name=name, retired_by=None)
    return list(found.order_by("position").values_list("step", flat=True))


@pytest.mark.parametrize("at_once", [1, 3, 7, 50])
def test_thinning_follows_from_the_steps_alone(at_once):
    operation = rows.claimed()
    items = [item(step) for step in range(1, 51)]
    for first in range(0, 50, at_once):
        write(operation, items[first : first + at_once])
    assert kept(operation) == [1, 16, 32, 48, 50]


@pytest.mark.parametrize("stop", [7, 20, 33, 49])
def test_thinning_is_equal_after_a_resume(stop):
    operation = rows.claimed()
    write(operation, [item(step) for step in range(1, stop + 1)])
    Media.objects.filter(operation=operation, step__gt=stop // 2).update(retired_by=2)
    write(operation, [item(step) for step in range(stop // 2 + 1, 51)], attempt=2)
    assert kept(operation) == [1, 16, 32, 48, 50]


def test_bytes_are_limited_as_well_and_the_newest_stays():
    operation = rows.claimed()
    write(operation, [item(step, size=300) for step in range(1, 9)], num_bytes=700)
    assert kept(operation) == [1, 8]
    write(operation, [item(9, size=900)], num_bytes=700)
    assert kept(operation) == [1, 8, 9]


def test_retired_items_are_limited_too():
    operation = rows.claimed()
    for attempt in range(1, 6):
        Media.objects.filter(operation=operation).update(retired_by=attempt)
        write(operation, [item(step) for step in range(1, 4)], attempt=attempt)
    retired = Media.objects.filter(operation=operation).exclude(retired_by=None)
    assert retired.count() == 5
    assert set(retired.values_list("attempt", flat=True)) == {3, 4}


def test_one_name_too_many_is_refused_with_one_line_in_the_log(settings):
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update={"media_names_per_operation": 2})
    writer = ReportWriter(rows.claimed())
    for step in range(1, 4):
        for name in ("a", "b", "c"):
            writer.logged(MediaLogged.of(item(step, name=name), 0.0))
        writer.flush()
    writer.flush()
    assert [kept(writer.operation, name) for name in ("a", "b", "c")] == [[1, 2, 3], [1, 2, 3], []]
    log = "".join(LogChunk.objects.values_list("text", flat=True))
    assert log.count("'c' is one name more than allowed: 2 names") == 1


def test_metrics_with_too_many_names_are_left_out_with_one_line(settings):
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update={"metric_names_per_operation": 2})
    writer = ReportWriter(rows.claimed())
    for step in range(1, 4):
        values = {"a": 1.0, "b": float("nan"), "c": 3.0, "d": 4.0, "system/speed": 5.0}
        writer.measured([(step, 0.0, values)])
        writer.flush()
    again = ReportWriter(Operation.objects.get(pk=writer.operation.pk))
    again.measured([(4, 0.0, {"c": 1.0, "b": 2.0})])
    again.flush()
    points = MetricPoint.objects.filter(operation=writer.operation).order_by("name", "step")
    names = points.values_list("name", "step")
    assert list(names) == [
        *(("a", step) for step in (1, 2, 3)), *(("b", step) for step in (1, 2, 3, 4)),
        *(("system/speed", step) for step in (1, 2, 3)),
    ]  # fmt: skip
    assert points.get(name="b", step=1).not_finite == "nan"
    log = "".join(LogChunk.objects.order_by("id").values_list("text", flat=True))
    assert log.count("'c' and other names beyond those allowed: 2 metrics") == 2  # of two attempts


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"type": "image"}, "allowed: a PNG file"),
        ({"type": "html"}, "got 'html'; allowed: image, histogram"),
        ({"content": "?"}, "allowed: base64"),
        ({"index": 64}, "got 64; allowed: 0 to 63"),
        ({"name": "a\nb"}, "printable"),
    ],
)
def test_what_no_recipe_could_log_is_left_out_with_a_line(more, problem):
    writer = ReportWriter(rows.claimed())
    message = MediaLogged.of(item(1), 0.0)
    fields = {name: getattr(message, name) for name in message.__slots__}
    writer.logged(MediaLogged(**{**fields, **more}))
    writer.flush()
    assert not Media.objects.exists()
    assert problem in "".join(LogChunk.objects.values_list("text", flat=True))


def test_branches_stand_again():
    """As metric points: a resume from an older attempt's checkpoint brings its items back."""
    operation = rows.claimed()
    write(operation, [item(step) for step in range(1, 5)], steps=100)
    name = "a0001-s0000000002-periodic"
    for by, checkpoint, step in ((2, None, 0), (3, name, 2)):
        branches.stand(operation.pk, by=by, checkpoint=checkpoint, measured_to=step, from_step=step)
        write(operation, [item(step + 1)], attempt=by, steps=100)
    found = Media.objects.filter(operation=operation).order_by("attempt", "step")
    assert [(each.attempt, each.step, each.retired_by) for each in found] == [
        (1, 1, None), (1, 2, None), (1, 3, 2), (1, 4, 2), (2, 1, 3), (3, 3, None),
    ]  # fmt: skip


def test_deleting_an_operation_deletes_its_media(person):
    operation = rows.in_state("CANCELLED", person)
    write(operation, [item(1)])
    deletion.delete(operation_id=operation.pk, actor=person)
    assert not Media.objects.exists()
