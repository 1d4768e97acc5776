"""The programs that `up` runs, and the environment that they share."""

import http.client
import os
import re
import secrets
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainops import worker_end
from trainops.launch import embedded
from trainops.launch.identity import unprivileged_user
from trainops.launch.options import EVERYWHERE, LOCAL_NAMES, LaunchOptions
from trainops.launch.program import NOTABLE, Program
from trainops.launch.refusal import CannotStart
from trainops.paths import ROOT

STORES, WORKING, SCHEDULING = range(3)  # stages of the start
BEAT, WORKERS, WEB, STORES_LAST = range(4)  # stages of the stop
DEFAULT_SHUTDOWN_SECONDS = 25.0
MARGIN_SECONDS = 7.0  # its own watchdog ends a worker 2 s after the shutdown timeout
HEALTH_SECONDS = 2.0
# A request for a page that is not there is the visitor's concern, not the operator's.
WEB_NOTABLE = re.compile(rf"^(?!.*WARNING django\.request)(?:.*?)(?:{NOTABLE.pattern})")
# PostgreSQL and Redis talk at start about things that are no concern of this installation.
FATAL = re.compile(r"^(?!.*(starting up|not yet accepting)).*\b(FATAL|PANIC)\b")


@dataclass(frozen=True, slots=True)
class Stack:
    """What to run, and the environment that all of it shares."""

    programs: list[Program]
    env: dict[str, str]


def build(options: LaunchOptions) -> Stack:
    """Find every binary and make every directory; raises CannotStart where one is missing."""
    env = _environment(options)
    if options.only_workers:
        return Stack(_workers(options, env), env)
    stores = []
    if not os.environ.get("TRAINOPS_BROKER_URL"):
        stores.append(_redis(options, env))
    if options.postgres:
        stores.append(_postgres(options, env))
    return Stack([*stores, _web(options, env), *_workers(options, env), _beat(env)], env)


def _environment(options: LaunchOptions) -> dict[str, str]:
    env = {
        **os.environ,
        "TRAINOPS_DATA_DIR": str(options.data_dir),
        "PYTHONUNBUFFERED": "1",  # a log shows a line when it was written
        "DJANGO_SETTINGS_MODULE": "trainops.settings",
    }
    if options.until is not None:  # a moment: also a worker that is started again ends then
        env[worker_end.UNTIL] = worker_end.written(options.until)
    if options.idle_exit:
        env[worker_end.IDLE_EXIT] = options.idle_exit
    env.setdefault("TRAINOPS_ALLOWED_HOSTS", ",".join(allowed_hosts(options.host)))
    return env


def allowed_hosts(host: str) -> list[str]:
    """The names by which a browser may address us when we listen on `host`."""
    names = list(LOCAL_NAMES)
    if host not in EVERYWHERE:
        names.append(f"[{host}]" if ":" in host else host)
        return list(dict.fromkeys(names))
    hostname = socket.gethostname()
    names += [hostname.lower(), socket.getfqdn().lower(), f"{hostname.lower()}.local"]
    names += _addresses(hostname)
    return list(dict.fromkeys(names))


def network_host(options: LaunchOptions) -> str:
    """Return the address, or name, by which other machines reach the web server."""
    if options.host not in EVERYWHERE:
        return f"[{options.host}]" if ":" in options.host else options.host
    return _routed_address() or socket.gethostname().lower()


def _addresses(hostname: str) -> list[str]:
    """This machine's addresses: those of its name, and the one that its default route uses."""
    found: list[str] = []
    with suppress(OSError):
        found += [str(answer[4][0]) for answer in socket.getaddrinfo(hostname, None)]
    found += [routed] if (routed := _routed_address()) else []
    return [f"[{address}]" if ":" in address else address for address in found]


def _routed_address() -> str:
    """Return the address that the default route uses; empty where there is none."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # documentation range; connecting a datagram sends nothing
        return str(probe.getsockname()[0])
    return ""


def _redis(options: LaunchOptions, env: dict[str, str]) -> Program:
    path = embedded.socket_directory(options.data_dir) / "redis.sock"
    env["TRAINOPS_BROKER_URL"] = embedded.redis_url(path)
    return Program(
        "redis",
        embedded.redis_command(embedded.redis_binary(), options.data_dir, path),
        start_stage=STORES,
        stop_stage=STORES_LAST,
        env=env,
        cwd=options.data_dir,
        # One that ended in order would take the socket away from the next start's Redis.
        orphan_signal=signal.SIGKILL,
        is_ready=partial(embedded.redis_answers, path),
        notable=FATAL,
    )


def _postgres(options: LaunchOptions, env: dict[str, str]) -> Program:
    if os.environ.get("TRAINOPS_DATABASE_URL"):
        raise CannotStart("--postgres and TRAINOPS_DATABASE_URL are mutually exclusive.")
    user = unprivileged_user()
    directory = options.data_dir / "postgres"
    if user:
        _let_pass(options.data_dir, user)
    binaries = embedded.binaries_for(user, embedded.postgres_binaries())
    embedded.postgres_initialise(binaries, directory, user)
    env["TRAINOPS_DATABASE_URL"] = embedded.postgres_url(directory)
    return Program(
        "postgres",
        embedded.postgres_command(binaries, directory),
        start_stage=STORES,
        stop_stage=STORES_LAST,
        env=env,
        cwd=Path("/"),
        user=user,
        stop_signal=signal.SIGINT,  # a fast shutdown: clients are disconnected, nothing is lost
        stop_seconds=30.0,
        orphan_signal=signal.SIGINT,
        is_ready=partial(embedded.postgres_answers, directory, user, binaries),
        notable=FATAL,
    )


def _let_pass(data_dir: Path, user: str) -> None:
    """Let PostgreSQL's user through to its own directory; it cannot list what is on the way."""
    data_dir.chmod(0o711)
    if not embedded.is_reachable(data_dir, user):
        raise CannotStart(
            f"PostgreSQL does not run as root, and the user {user} cannot reach "
            f"{data_dir}: choose a --data-dir that this user can access."
        )


def _web(options: LaunchOptions, env: dict[str, str]) -> Program:
    command = [sys.executable, "-m", "trainops.web"]
    return Program(
        "web",
        [*command, "--host", options.host, "--port", str(options.port)],
        start_stage=WORKING,
        stop_stage=WEB,
        notice_signal=signal.SIGUSR1,  # from now on it sends workers away
        env=env,
        cwd=ROOT,
        is_ready=partial(_web_answers, options.connect_host, options.port),
        notable=WEB_NOTABLE,
    )


def _web_answers(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=HEALTH_SECONDS)
    try:
        connection.request("GET", "/api/v1/health")
        return connection.getresponse().status < http.HTTPStatus.INTERNAL_SERVER_ERROR
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _workers(options: LaunchOptions, env: dict[str, str]) -> list[Program]:
    return [_worker(number, env) for number in range(1, options.workers + 1)]


def has_end(env: Mapping[str, str]) -> bool:
    """Whether workers end by themselves."""
    return bool(env.get(worker_end.UNTIL) or env.get(worker_end.IDLE_EXIT))


def _worker(number: int, env: dict[str, str]) -> Program:
    # Unique for each start: what is left of an earlier run may still be saving under its name.
    name = f"worker{number}-{secrets.token_hex(2)}@%h"
    shutdown = float(env.get("TRAINOPS_SHUTDOWN_TIMEOUT_SECONDS") or DEFAULT_SHUTDOWN_SECONDS)
    return Program(
        f"worker{number}",
        [*_celery("worker"), "--hostname", name],
        start_stage=WORKING,
        stop_stage=WORKERS,
        env=env,
        cwd=ROOT,
        stop_seconds=shutdown + MARGIN_SECONDS,
        may_end=has_end(env),
        stop_note="stopping; running operations are saved first",
    )


def _beat(env: dict[str, str]) -> Program:
    return Program(
        "beat",
        [*_celery("beat"), "--pidfile="],
        start_stage=SCHEDULING,
        stop_stage=BEAT,
        env=env,
        cwd=ROOT,
    )


def _celery(command: str) -> list[str]:
    options = ["--loglevel", "INFO"]
    return [sys.executable, "-m", "celery", "--app", "trainops.celery", command, *options]
