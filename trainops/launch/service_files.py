"""The files of `install-service`: systemd units and a batch script of Slurm, as texts."""

import hashlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MARK = "# Written by trainops install-service. SHA-256 of the lines below: "
WORKER_STOP_SECONDS = 35  # its own watchdog ends a worker 27 s after the signal
UP_STOP_SECONDS = 90  # beat, workers, web, stores, one after the other
SIGNAL_SECONDS = 90  # before a time limit; Slurm may send it up to 60 s early, never late
BATCH_TIME = "04:00:00"
END_SECONDS = 60  # before the limit everything is saved
CELERY = "-m celery --app trainops.celery"


@dataclass(frozen=True, slots=True)
class Installation:
    """What runs, where, as whom, and with which environment."""

    python: Path
    root: Path
    data_dir: Path
    env_file: Path
    environment: Mapping[str, str]
    user: str | None = None  # None: units of the user's own service manager
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    until: str = ""
    idle_exit: str = ""

    @property
    def is_system(self) -> bool:
        return self.user is not None


def marked(body: str, *, first: str = "") -> str:
    """Return a file's text with the line that tells whether it was changed since."""
    return f"{first}{MARK}{hashlib.sha256(body.encode()).hexdigest()}\n{body}"


def is_unchanged(text: str) -> bool:
    """Whether a file is as `marked` made it, be it by an earlier version."""
    before, mark, rest = text.partition(MARK)
    digest, _, body = rest.partition("\n")
    is_first = before == "" or (before.startswith("#!") and before.count("\n") == 1)
    return bool(mark) and is_first and hashlib.sha256(body.encode()).hexdigest() == digest


def environment_file(environment: Mapping[str, str]) -> str:
    """Return assignments that systemd and a shell read alike."""
    lines = [f"{name}={shlex.quote(value)}" for name, value in sorted(environment.items())]
    return marked("".join(f"{line}\n" for line in lines))


def whole_unit(made_for: Installation) -> dict[str, str]:
    """Return the one unit of an installation whose stores `up` starts."""
    options = ["--data-dir", str(made_for.data_dir), "--host", made_for.host]
    options += ["--port", str(made_for.port), "--workers", str(made_for.workers)]
    command = _command(made_for, f"-m trainops up --no-install {shlex.join(options)}")
    return {"trainops.service": marked(_unit(
        made_for, "trainops: web, beat, workers and their stores", command,
        stop_seconds=UP_STOP_SECONDS, install=_target(made_for),
    ))}  # fmt: skip


def units(made_for: Installation, *, only_workers: bool = False) -> dict[str, str]:
    """Return the units of an installation whose database and broker run elsewhere."""
    worker = _unit(
        made_for, "trainops: worker %i", _command(made_for, f"{CELERY} worker --loglevel INFO"),
        stop_seconds=WORKER_STOP_SECONDS, extra=_end(made_for), part_of=True,
        # Exit code 0 is the end of its time, where it has one.
        restart="on-failure" if made_for.until or made_for.idle_exit else "always",
    )  # fmt: skip
    found = {"trainops-worker@.service": worker}
    if not only_workers:
        web = f"-m trainops.web --host {made_for.host} --port {made_for.port}"
        found["trainops-web.service"] = _unit(
            made_for, "trainops: pages and API", _command(made_for, web), stop_seconds=30,
            extra=f"ExecStartPre={_command(made_for, '-m trainops.launch.prepare')}\n",
            part_of=True,
        )  # fmt: skip
        found["trainops-beat.service"] = _unit(
            made_for, "trainops: scheduler", part_of=True, after="trainops-web.service",
            command=_command(made_for, f"{CELERY} beat --loglevel INFO --pidfile="),
        )  # fmt: skip
    members = [name for name in found if "@" not in name]
    members += [f"trainops-worker@{n}.service" for n in range(1, made_for.workers + 1)]
    found["trainops.target"] = (
        f"[Unit]\nDescription=trainops\nWants={' '.join(members)}\n\n"
        f"[Install]\nWantedBy={_target(made_for)}\n"
    )
    return {name: marked(body) for name, body in found.items()}


def _unit(
    made_for: Installation, description: str, command: str, *, stop_seconds: int = 10,
    extra: str = "", part_of: bool = False, after: str = "", restart: str = "always",
    install: str = "",
) -> str:  # fmt: skip
    """Return a service. A signal to the main process only: it saves and ends all others.

    An operation that runs out of memory must not end its worker (OOMPolicy).
    """
    order = " ".join(filter(None, ("network-online.target" if made_for.is_system else "", after)))
    head = f"[Unit]\nDescription={description}\n"
    head += f"Wants={order}\nAfter={order}\n" if order else ""
    head += "PartOf=trainops.target\n" if part_of else ""
    user = f"User={made_for.user}\n" if made_for.user else ""
    tail = f"\n[Install]\nWantedBy={install}\n" if install else ""
    return (
        f"{head}\n[Service]\n{user}WorkingDirectory={_escaped(made_for.root)}\n"
        f"EnvironmentFile={_escaped(made_for.env_file)}\n{extra}ExecStart={command}\n"
        f"Restart={restart}\nRestartSec=5\nKillMode=mixed\nTimeoutStopSec={stop_seconds}\n"
        f"OOMPolicy=continue\nLimitNOFILE=16384\nUMask=0077\nNoNewPrivileges=yes\n{tail}"
    )


def _end(made_for: Installation) -> str:
    given = {
        "TRAINOPS_WORKER_UNTIL": made_for.until,
        "TRAINOPS_WORKER_IDLE_EXIT": made_for.idle_exit,
    }
    return "".join(f"Environment={name}={value}\n" for name, value in given.items() if value)


def _target(made_for: Installation) -> str:
    return "multi-user.target" if made_for.is_system else "default.target"


def _command(made_for: Installation, arguments: str) -> str:
    return f'"{_escaped(made_for.python)}" {arguments.replace("%", "%%")}'


def _escaped(path: Path) -> str:
    return str(path).replace("%", "%%")


@dataclass(frozen=True, slots=True)
class BatchJob:
    """What a batch job asks for."""

    time: str = BATCH_TIME
    nodes: int = 1
    gpus: int = 0
    partition: str = ""


def batch_script(made_for: Installation, wanted: BatchJob) -> str:
    """Return a batch script of Slurm that runs a worker on each node, until shortly before its end.

    SIGUSR1 and SIGTERM reach the workers, which save and hand back; then the job is put back into
    the queue. A job whose workers found no more work is not.
    """
    asked = [f"--nodes={wanted.nodes}", "--ntasks-per-node=1", f"--time={wanted.time}"]
    asked += [f"--gpus-per-node={wanted.gpus}"] if wanted.gpus else []
    asked += [f"--partition={wanted.partition}"] if wanted.partition else []
    asked += [f"--signal=B:USR1@{SIGNAL_SECONDS}", "--requeue", "--open-mode=append"]
    values = {
        "@DIRECTIVES@": "\n".join(f"#SBATCH {each}" for each in ["--job-name=trainops", *asked]),
        "@ENV_FILE@": shlex.quote(str(made_for.env_file)),
        "@ROOT@": shlex.quote(str(made_for.root)),
        "@PYTHON@": shlex.quote(str(made_for.python)),
        "@DATA_DIR@": shlex.quote(str(made_for.data_dir)),
        "@WORKERS@": str(made_for.workers),
        "@IDLE_EXIT@": shlex.quote(made_for.idle_exit or "10m"),
        "@END_SECONDS@": str(END_SECONDS),
        "@SIGNAL_SECONDS@": str(SIGNAL_SECONDS),
    }
    body = BATCH
    for name, value in values.items():
        body = body.replace(name, value)
    return marked(body, first="#!/bin/bash\n")


BATCH = """\
@DIRECTIVES@
#
# Workers of trainops for one job: submit it with sbatch, as often as there are nodes to use.
# Shortly before the time limit they save their operations and hand them back; other workers, or
# this job when it starts again, continue them exactly. Without work for some time they end.
set -u
set -a
. @ENV_FILE@
set +a
cd @ROOT@ || exit 2

asked=""
step=""
ask() { # the job is to end: its workers save first
    asked=yes
    [ -z "$step" ] || kill -USR1 "$step" 2>/dev/null
}
trap ask USR1 TERM

until=()
end="${SLURM_JOB_END_TIME:-}"
if [ -n "$end" ]; then
    until=(--until "$(date -u -d "@$((end - @END_SECONDS@))" +%Y-%m-%dT%H:%M:%S+00:00)")
fi
srun @PYTHON@ -m trainops up --no-install --only-workers --data-dir @DATA_DIR@ \\
    --workers @WORKERS@ --idle-exit @IDLE_EXIT@ "${until[@]}" &
step=$!
[ -z "$asked" ] || kill -USR1 "$step" 2>/dev/null # the signal came before the step
wait "$step"
code=$?
while kill -0 "$step" 2>/dev/null; do # a signal ends `wait`, not the step
    wait "$step"
    code=$?
done
if [ -n "$end" ] && [ "$(date +%s)" -ge "$((end - @SIGNAL_SECONDS@))" ]; then
    asked=yes # its own end came first
fi
if [ -n "$asked" ]; then
    echo "handed back (exit code $code); requeueing job $SLURM_JOB_ID"
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""
