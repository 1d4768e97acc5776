"""Check whether a recipe resumes exactly: run it undisturbed, stop it, resume it, compare."""

import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from trainops.checking.messages import Attempted, CheckedJob
from trainops.checking.plan import CheckPlan, plan
from trainops.checking.report import CheckReport, Cost
from trainops.checking.runner import PATIENCE, START_SECONDS, Runner
from trainops.checking.servers import NoAnswer, Servers
from trainops.checking.stops import Stops
from trainops.checking.variations import NAME, Variations
from trainops.datasets.registering import registered
from trainops.kind import KINDS
from trainops.recipes import Recipe, find
from trainops.runtime.errors import ConfigError

MAX_STEPS, MAX_SECONDS = 60, 8.0
COST_SECONDS, COST_STEPS, REPEATS = 6.0, 40, 3
PARQUET = b"PAR1"  # begins each file of this format
EVERY_STEPS = 10  # between checkpoints when the cost is measured
Tell = Callable[[str], None]


class CheckFailed(Exception):
    """The recipe cannot be run undisturbed; the message has the reason."""


def check_recipe(
    name: str,
    *,
    kind: str | None = None,
    config: Mapping[str, object] | None = None,
    inputs: Mapping[str, Path] | None = None,
    max_steps: int = MAX_STEPS,
    max_seconds: float = MAX_SECONDS,
    measures_cost: bool = True,
    processes: int | None = None,
    servers: Servers | None = None,
    tell: Tell = lambda text: None,
) -> CheckReport:
    """Run the resume contract over a registered recipe in processes of this machine.

    kind: of the recipe, where it must be of this one. config: fields that replace those of the
    recipe's example. inputs: the Parquet file or directory of each dataset, and the final
    checkpoint of each operation, that the config names by id.
    The undisturbed run is cut after `max_steps` safe points or `max_seconds`. `tell` receives a
    line of progress before each run. `processes`: how many ranks compute each run (None: those of
    the config); the cost of a step is measured in one process only.

    Raises ConfigError for wrong arguments, CheckFailed where the recipe cannot be run at all.
    """
    if max_steps < 2:
        raise ConfigError({"max_steps": f"got {max_steps}; allowed: 2 or more"})
    recipe = _recipe(name, kind)
    with ExitStack() as exits:
        directory = Path(exits.enter_context(_new_directory()))
        given = {**(config or {}), **_of_processes(recipe, processes)}
        subject = _subject(recipe, given, inputs or {}, directory)
        used = servers or exits.enter_context(Servers())
        runner = Runner(used, _with_milestones(subject), directory)
        report, whole = _compared(runner, max_steps, max_seconds, tell)
        if measures_cost and report.processes == 1:
            tell("the cost of a step")
            report.cost = _cost(replace(runner, subject=subject), whole, tell)
    return report


def _new_directory() -> tempfile.TemporaryDirectory[str]:
    # After an interrupt, a process that is being killed may still write.
    return tempfile.TemporaryDirectory(prefix="trainops-check-", ignore_cleanup_errors=True)


def _compared(
    runner: Runner, max_steps: int, max_seconds: float, tell: Tell
) -> tuple[CheckReport, Attempted]:
    """Run everything that is compared with the undisturbed run."""
    subject = runner.subject
    kind = KINDS[subject.kind]
    report = CheckReport(str(subject.config["recipe"]), subject.kind, kind.unit)
    report.processes = kind.parse_config(subject.config).num_processes
    tell("the undisturbed run")
    whole = runner.attempt(max_steps=max_steps, max_seconds=max_seconds)
    planned = _plan(whole)
    runner.timeout_seconds = START_SECONDS + PATIENCE * whole.seconds
    report.steps, report.not_reached = whole.step, planned.not_reached
    report.total_steps = whole.step if whole.ending == "completed" else 0
    report.uncertain = whole.uncertain
    tell(NAME)
    variations, stops = Variations(runner, whole, planned.end), Stops(runner, whole, planned)
    tried, report.findings = variations.run()
    report.tried.append(tried)
    if variations.is_repeatable:
        report.tried += stops.run(tell)
        report.findings += stops.causes()
        report.warnings = stops.warnings()
    return report, whole


def _plan(whole: Attempted) -> CheckPlan:
    """Return where to stop. Raises CheckFailed."""
    if whole.ending == "failed":
        raise CheckFailed(f"the undisturbed run failed: {whole.error}\n{whole.trace}".strip())
    try:
        return plan(whole.points)
    except ValueError as error:
        raise CheckFailed(str(error)) from error


def _cost(runner: Runner, whole: Attempted, tell: Tell) -> Cost | None:
    """Measure over as many steps as take a few seconds; None where that fails."""
    steps = [each.step for each in whole.points if each.step and not each.is_evaluating]
    affordable = COST_SECONDS * len(steps) / max(whole.seconds, 1e-3) / (3 * REPEATS)
    until = steps[min(max(int(affordable), 3), COST_STEPS, len(steps)) - 1]
    every_steps = max(1, min(EVERY_STEPS, until // 3))
    try:
        return Cost(runner.measure(until, every_steps, REPEATS), until, every_steps)
    except NoAnswer as error:
        tell(f"the cost of a step could not be measured: {error}")
        return None


def _subject(
    recipe: Recipe, config: Mapping[str, object], inputs: Mapping[str, Path], directory: Path
) -> CheckedJob:
    """Return the recipe's example with the given fields.

    Directories of data are registered below `directory`. Raises ConfigError and DataError.
    """
    given = config.get("parameters", {})
    if isinstance(given, Mapping):
        given = {**recipe.example.get("parameters", {}), **given}
    whole = {**recipe.example, **config, "recipe": recipe.name, "parameters": given}
    parsed = KINDS[recipe.kind].parse_config(whole)
    wanted = [*parsed.dataset_ids(), *parsed.models()]
    if missing := [each for each in wanted if each not in inputs]:
        problem = f"got no file for {', '.join(missing)}; allowed: a path for each id (--input)"
        raise ConfigError({"inputs": problem})
    paths = {name: path.absolute() for name, path in inputs.items()}
    for each in parsed.dataset_ids():
        if paths[each].is_dir():
            paths[each] = registered(paths[each], each, directory / "datasets")
        elif not is_parquet(paths[each]):
            allowed = (
                "a Parquet file, as trainops stores tables in DATA_DIR/datasets, or a directory"
            )
            raise ConfigError({"inputs": f"got {paths[each]} for {each}; allowed: {allowed}"})
    return CheckedJob(recipe.kind, whole, paths)


def _of_processes(recipe: Recipe, processes: int | None) -> dict[str, int]:
    """Return the field of the config. Raises ConfigError for kinds of one process."""
    able = [name for name, kind in KINDS.items() if "devices" in kind.ports]
    if processes in (None, 1) and recipe.kind not in able:
        return {}
    if recipe.kind not in able:
        allowed = f"1, or recipes of the kind {', '.join(able)}"
        problem = f"got {processes} for a recipe of the kind {recipe.kind}; allowed: {allowed}"
        raise ConfigError({"processes": problem})
    return {} if processes is None else {"processes": processes}


def _recipe(name: str, kind: str | None) -> Recipe:
    recipe = find(name)
    if kind not in (None, recipe.kind):
        raise ConfigError({"kind": f"got {kind!r}; allowed for {name}: {recipe.kind}"})
    return recipe


def is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(PARQUET)) == PARQUET


def _with_milestones(subject: CheckedJob) -> CheckedJob:
    """Have the job count each epoch (episode, round), so that a stop can be at its end."""
    config = dict(subject.config)
    for threshold in KINDS[subject.kind].thresholds:
        section, _, name = threshold.field.partition(".")
        if section == "checkpoint":
            given = config.get(section)
            config[section] = {**given, name: 1} if isinstance(given, Mapping) else {name: 1}
    return replace(subject, config=config)
