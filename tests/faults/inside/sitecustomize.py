"""Loaded by Python itself into every process of a test's installation, by way of PYTHONPATH.

So the product has no hooks for tests. Three things can be done to a process from outside, and each
attempt leaves the number of its process in the file `trace-OPERATION` after every step:

- `clock` in the directory TRAINOPS_TEST_FAULTS and a signal: a worker's wall clock jumps.
- a file `armed-POINT` there: the next process that comes to that point dies of SIGKILL.
- a file `tree` there: workers, web and beat that start run the code of the directory it names.
"""

import os
import signal
import sys
from functools import wraps
from importlib.machinery import PathFinder
from pathlib import Path

FAULTS = os.environ.get("TRAINOPS_TEST_FAULTS")
JUMP = signal.SIGRTMIN + 3
CHILD = "trainops.process.attempt_process"
POINTS = {  # module: {attribute: (point before, point after)}
    "apps.operations.scheduling.claims": {
        "_take": ("", "claim-before-commit"),
        "claim": ("", "claim-after-commit"),
        "finish": ("end-before-commit", "end-after-commit"),
    },
    "apps.operations.attempts.report_writer": {
        "ReportWriter._write": ("commit-before-row", ""),
        "ReportWriter.commit": ("", "commit-before-answer"),
        "ReportWriter.restored": ("restored-before-commit", ""),
    },
    "apps.checkpoints.services": {
        "commit": ("", "commit-row-before-commit"),
        "retain": ("retention-before", "retention-after"),
        "remove_files": ("retention-before-files", ""),
    },
}
NAMES = sorted(
    point for module in POINTS.values() for points in module.values() for point in points if point
)


def _die_at(point: str) -> None:
    if point:
        try:
            Path(FAULTS, f"armed-{point}").unlink()
        except OSError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def _wrapped(function, before, after):
    @wraps(function)
    def call(*arguments, **named):
        _die_at(before)
        result = function(*arguments, **named)
        _die_at(after)
        return result

    return call


def _traced(run):
    """Wrap what runs an attempt: its process says after every step that it has computed."""

    @wraps(run)
    def call(start, line, ranks):
        trace, report = Path(FAULTS, f"trace-{start.identity['operation_id']}"), line.report

        def report_and_trace(progress):
            with trace.open("a") as file:
                file.write(f"{os.getpid()}\n")
            return report(progress)

        line.report = report_and_trace
        return run(start, line, ranks)

    return call


class _Finder:
    """Wraps the functions of POINTS, and attempts, as soon as their module has been executed."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in POINTS and name != CHILD:
            return None
        spec = PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def execute_and_wrap(module):
            execute(module)
            if name == CHILD:
                module._run = _traced(module._run)
            for place, points in POINTS.get(name, {}).items():
                *owner, attribute = place.split(".")
                holder = getattr(module, owner[0]) if owner else module
                setattr(holder, attribute, _wrapped(getattr(holder, attribute), *points))

        spec.loader.exec_module = execute_and_wrap
        return spec


def _enter_tree():
    """Change the directory before Python puts the present one in front of `sys.path` for `-m`."""
    tree = Path(FAULTS, "tree")
    is_program = any(each in sys.orig_argv for each in ("worker", "beat", "trainops.web"))
    if is_program and tree.exists():
        os.chdir(tree.read_text())


def _jump(*_):
    import time_machine

    offset = float(Path(FAULTS, "clock").read_text())
    if _journeys:
        _journeys.pop().stop()
    import time

    journey = time_machine.travel(time.time() + offset, tick=True)
    journey.start()
    _journeys.append(journey)


_journeys = []
if FAULTS:
    _enter_tree()
    sys.meta_path.insert(0, _Finder)
    if "celery" in sys.orig_argv and "worker" in sys.orig_argv:
        signal.signal(JUMP, _jump)
