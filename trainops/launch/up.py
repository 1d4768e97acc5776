"""`python3 -m trainops up`: from a fresh clone to a running installation."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from trainops import paths
from trainops.launch import checks, data_directory, environment, options, stack
from trainops.launch.options import LaunchOptions
from trainops.launch.prepared import Prepared
from trainops.launch.program_runner import ProgramRunner
from trainops.launch.refusal import CannotStart
from trainops.paths import CLONE, COMMAND

ALLOWED_HOSTS = "TRAINOPS_ALLOWED_HOSTS"
PREPARE = (sys.executable, "-m", "trainops.launch.prepare", "--json")


def up(arguments: Sequence[str]) -> int:
    """Run until stopped. Returns the exit code; raises CannotStart before anything runs."""
    chosen = options.parse(arguments)
    _check(chosen)
    if chosen.install and CLONE:
        environment.ensure(chosen.log_dir)
    if environment.python().exists() and not environment.is_active():
        environment.enter(["up", *arguments])
    if not environment.is_usable():
        raise CannotStart("The packages are not installed; run once without --no-install.")
    os.umask(checks.umask())
    if chosen.only_workers:
        return _join(chosen)
    with data_directory.owned(chosen.data_dir, chosen.url):
        if checks.close_to_others(chosen.data_dir):
            say(
                None,
                f"{chosen.data_dir} was accessible to other users; it is private now.",
            )
        return _run(chosen)


def _check(chosen: LaunchOptions) -> None:
    """Say what is in the way now, not after minutes of installing."""
    checks.require_writable(chosen.data_dir)
    data_directory.require_not_newer(chosen.data_dir)
    if chosen.only_workers:
        checks.require_stores_elsewhere()
        return
    with data_directory.owned(chosen.data_dir, chosen.url):
        checks.require_port(chosen.host, chosen.port)
        checks.require_space(chosen.data_dir, checks.RUN_BYTES, "to run")


def _run(chosen: LaunchOptions) -> int:
    _require_thresholds()
    built = stack.build(chosen)
    prepared: list[Prepared] = []  # one, when the stores are ready
    say(None, "Starting …")
    supervisor = ProgramRunner(
        built.programs,
        chosen.log_dir,
        say,
        after={
            stack.STORES: lambda: prepared.append(_prepare(chosen, built.env)),
            stack.SCHEDULING: lambda: print(welcome(chosen, prepared[-1], built.env), flush=True),
        },
    )
    return _until_stopped(supervisor)


def _join(chosen: LaunchOptions) -> int:
    """Run workers beside an installation whose web, beat, database and broker are elsewhere."""
    _require_thresholds()
    built = stack.build(chosen)
    joined = f"{chosen.workers} workers, logs in {chosen.log_dir}; Ctrl-C stops them.{_end(chosen)}"
    after = {
        stack.STORES: lambda: _require_current(built.env),
        stack.WORKING: lambda: say(None, joined),
    }
    return _until_stopped(ProgramRunner(built.programs, chosen.log_dir, say, after=after))


def _end(chosen: LaunchOptions) -> str:
    """Say when the workers end by themselves."""
    parts = []
    if chosen.until is not None:
        moment = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(chosen.until))
        parts.append(f" They have ended by {moment}.")
    if chosen.idle_exit:
        parts.append(f" Each ends after {chosen.idle_exit} without work.")
    return "".join(parts)


def _until_stopped(supervisor: ProgramRunner) -> int:
    code = supervisor.run()
    how = "Killed without saving." if code else "Stopped."
    say(None, f"{how} Running operations resume at the next start or on another worker.")
    return code


def _require_current(env: Mapping[str, str]) -> None:
    command = [*PREPARE, "--check"]
    done = subprocess.run(
        command, env=env, cwd=paths.ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CannotStart((done.stderr.strip().splitlines() or ["no output"])[-1])


def _require_thresholds() -> None:
    # It needs pydantic, which is here only now.
    from trainops import log_format, metrics_settings, serving, thresholds  # noqa: PLC0415
    from trainops.runtime import implementation  # noqa: PLC0415
    from trainops.sinks import known as sinks  # noqa: PLC0415

    try:
        thresholds.read()
        serving.read()
        implementation.read()
        sinks.read()
        log_format.read()
        metrics_settings.token()
        metrics_settings.networks()
    except ValueError as problem:
        raise CannotStart(str(problem)) from None


def _prepare(chosen: LaunchOptions, env: Mapping[str, str]) -> Prepared:
    """Migrate and so on, in a process of its own."""
    command = [*PREPARE, "--url", chosen.url]
    command += ["--demo"] if chosen.demo else []
    command += ["--take-over-storage"] if chosen.take_over_storage else []
    done = subprocess.run(
        command,
        env=env,
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # Ctrl-C is heard after it, by the supervisor
    )
    (chosen.log_dir / "prepare.log").write_text(done.stderr)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        where = "" if done.returncode == 2 else f" (more in {chosen.log_dir / 'prepare.log'})"
        raise CannotStart(last + where)
    data_directory.write_version(chosen.data_dir, _program_version())
    prepared = Prepared(**json.loads(done.stdout.splitlines()[-1]))
    if prepared.migrated:
        say(None, f"Database migrated ({prepared.migrated} migrations).")
    for warning in prepared.warnings:
        say(None, f"Warning: {warning}")
    return prepared


def _program_version() -> str:
    return environment.version()


def say(program: str | None, text: str) -> None:
    """One line for the person at the terminal, if there still is one."""
    line = f"{program:>9} | {text}" if program else text
    try:
        print(line[: shutil.get_terminal_size((400, 0)).columns * 3], flush=True)
    except OSError:  # the terminal was closed; stopping in order matters more
        return


def _exposure() -> str:
    if os.environ.get("TRAINOPS_BEHIND_HTTPS_PROXY") == "1":
        return "over plain HTTP, only for the proxy: block this port for other machines"
    return "over plain HTTP: passwords are sent unencrypted (docs/security.md)"


def _elsewhere(chosen: LaunchOptions, allowed: str) -> str:
    """Return the address that other machines open; `allowed` is the value of ALLOWED_HOSTS."""
    names = [each.strip().lstrip(".") for each in allowed.split(",")]
    host = stack.network_host(chosen)
    if host not in names and "*" not in names:
        further = [each for each in names if each and each not in options.LOCAL_NAMES]
        if not further:
            return f"http://{host}:{chosen.port}, once {ALLOWED_HOSTS} names {host}"
        host = further[0]
    return f"http://{host}:{chosen.port}   ({ALLOWED_HOSTS} names the host)"


def welcome(chosen: LaunchOptions, prepared: Prepared, env: Mapping[str, str]) -> str:
    """The box that says where it is, who may come in, and what to try first."""
    rows = [("Open", chosen.url)]
    if chosen.is_exposed:
        rows.append(("Elsewhere", _elsewhere(chosen, env.get(ALLOWED_HOSTS, ""))))
    rows.append(("Sign in as", prepared.admin))
    if prepared.password:
        rows.append(("Password", f"{prepared.password}   (shown only once)"))
    rows += [("Data", str(chosen.data_dir)), ("Logs", str(chosen.log_dir)), ("Stop", "Ctrl-C")]
    if chosen.is_exposed:
        rows.append(("Exposed", _exposure()))
    if prepared.demo:
        rows.append(("Demo", f"{chosen.url}/operations/{prepared.demo}/"))
    lines = [f"{label:<11}{value}" for label, value in rows]
    lines += ["", "First commands, in another terminal:"]
    lines += [f"  {command}" for command in _first_commands(chosen, prepared)]
    width = max(map(len, lines))
    framed = [f"│ {line:<{width}} │" for line in lines]
    title = " trainops is running "
    top = f"╭─{title}{'─' * (width + 1 - len(title))}╮"
    return "\n".join(["", top, *framed, f"╰{'─' * (width + 2)}╯", ""])


def _first_commands(chosen: LaunchOptions, prepared: Prepared) -> list[str]:
    first = []
    if chosen.data_dir != paths.default_data_dir().resolve():
        first.append(f"export TRAINOPS_DATA_DIR={chosen.data_dir}")
    if prepared.demo:
        demo = prepared.demo
        return [*first, f"{COMMAND} logs -f {demo}", f"{COMMAND} cancel {demo}",
                f"{COMMAND} resume {demo}",
                f"{COMMAND} bulk cancel tag:demo    (ends what --demo submitted)",
                f"{COMMAND} bulk delete tag:demo    (removes it)"]  # fmt: skip
    return [*first, f"{COMMAND} recipes", f"{COMMAND} ls", f"{COMMAND} --help"]
