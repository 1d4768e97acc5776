"""`python3 -m trainops install-service`: run this installation by systemd, or in jobs of Slurm."""

import argparse
import getpass
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainops import paths
from trainops.launch import checks, environment, options, service_files
from trainops.launch.refusal import CannotStart
from trainops.launch.service_files import BatchJob, Installation

DESCRIPTION = """\
Write systemd units that run this installation, or a batch script of Slurm that runs workers of it.
Without TRAINOPS_BROKER_URL one unit runs `up` with the embedded stores; with it, web, beat and each
worker have a unit of their own.
"""
SYSTEM_UNITS, SYSTEM_CONFIG = Path("/etc/systemd/system"), Path("/etc/trainops")
KEPT = ("CUDA_VISIBLE_DEVICES", "PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE",
        "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
        "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")  # fmt: skip
PREFIXES = ("TRAINOPS_", "AWS_", "AZURE_", "GOOGLE_", "OTEL_", "PGSSL")
# Of the command line, of tests and of one worker's end.
LEFT_OUT = ("TRAINOPS_TEST_", "TRAINOPS_URL", "TRAINOPS_TOKEN", "TRAINOPS_CONTEXT",
            "TRAINOPS_USERNAME", "TRAINOPS_PASSWORD", "TRAINOPS_WORKER_UNTIL",
            "TRAINOPS_WORKER_IDLE_EXIT")  # fmt: skip


def install_service(arguments: Sequence[str]) -> int:
    """Write the files and print what was written. Raises CannotStart, before it writes any."""
    chosen = _parser().parse_args(arguments)
    is_system = chosen.system and chosen.target == "systemd"
    if chosen.only_workers or chosen.target == "slurm":
        checks.require_stores_elsewhere()
    made_for = _installation(chosen, is_system=is_system)
    env_file = service_files.environment_file(made_for.environment)
    if chosen.target == "slurm":
        batch = BatchJob(chosen.time, chosen.nodes, chosen.gpus, chosen.partition)
        files = {chosen.output.absolute(): service_files.batch_script(made_for, batch)}
    else:
        folder = SYSTEM_UNITS if is_system else _user_config() / "systemd" / "user"
        files = {folder / name: text for name, text in _units(made_for, chosen).items()}
    if chosen.print:
        _print({made_for.env_file: _without_values(made_for), **files})
        return 0
    everything = {made_for.env_file: env_file, **files}
    _require_unchanged(everything)
    for path, text in everything.items():
        _write(path, text)
    _say_next(chosen, is_system=is_system)
    return 0


def _units(made_for: Installation, chosen: argparse.Namespace) -> dict[str, str]:
    if "TRAINOPS_BROKER_URL" in made_for.environment:
        return service_files.units(made_for, only_workers=chosen.only_workers)
    return service_files.whole_unit(made_for)


def _installation(chosen: argparse.Namespace, *, is_system: bool) -> Installation:
    python = environment.python() if paths.CLONE else Path(sys.executable)
    if not python.exists():
        raise CannotStart(f"{python} does not exist yet. Create it with: {paths.COMMAND} up")
    data_dir = chosen.data_dir.expanduser().resolve()
    config = SYSTEM_CONFIG if is_system else _user_config() / "trainops"
    return Installation(
        python=python,
        root=paths.ROOT,
        data_dir=data_dir,
        env_file=config / "service.env",
        environment=_environment(os.environ, data_dir, chosen.host),
        user=(chosen.run_as or _owner(data_dir)) if is_system else None,
        host=chosen.host,
        port=chosen.port,
        workers=chosen.workers,
        until=chosen.until or "",
        idle_exit=chosen.idle_exit or "",
    )


def _environment(given: Mapping[str, str], data_dir: Path, host: str) -> dict[str, str]:
    """Return what the services need of this environment. Raises CannotStart for several lines."""
    from trainops.launch import stack  # noqa: PLC0415 - it looks for names of this machine

    found = {
        name: value
        for name, value in given.items()
        if (name in KEPT or name.startswith(PREFIXES)) and not name.startswith(LEFT_OUT)
    }
    for name, value in found.items():
        if "\n" in value:
            raise CannotStart(f"{name} has several lines; an environment file cannot hold them.")
    found |= {
        "TRAINOPS_DATA_DIR": str(data_dir),
        "PYTHONUNBUFFERED": "1",
        "DJANGO_SETTINGS_MODULE": "trainops.settings",
    }
    found.setdefault("TRAINOPS_ALLOWED_HOSTS", ",".join(stack.allowed_hosts(host)))
    return found


def _owner(data_dir: Path) -> str:
    """Return whose data directory it is; who calls, where there is none yet."""
    return data_dir.owner() if data_dir.exists() else os.environ.get("SUDO_USER", getpass.getuser())


def _user_config() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()


def _require_unchanged(files: Mapping[Path, str]) -> None:
    """Raises CannotStart where a file was changed since it was written, or is another's."""
    for path, text in files.items():
        if not path.exists():
            continue
        known = path.read_text(errors="replace")
        if known != text and not service_files.is_unchanged(known):
            raise CannotStart(
                f"{path} was changed, or is not of trainops; nothing was written. Move it away "
                "first, or print the new files with --print."
            )


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists() or path.read_text() != text
        if is_new:
            is_secret = path.suffix == ".env"
            path.unlink(missing_ok=True)
            path.touch(mode=0o600 if is_secret else 0o644)
            path.write_text(text)
    except OSError as error:
        hint = "; use --user, or run it as root" if isinstance(error, PermissionError) else ""
        raise CannotStart(f"{path} cannot be written: {error.strerror}{hint}.") from None
    print(f"{'wrote' if is_new else 'unchanged'}  {path}")


def _without_values(made_for: Installation) -> str:
    """Return the names only: the values hold passwords, and a terminal is not private."""
    names = sorted(made_for.environment)
    return "".join(f"{name}=…\n" for name in names)


def _print(files: Mapping[Path, str]) -> None:
    for path, text in files.items():
        print(f"## {path}\n{text}")


def _say_next(chosen: argparse.Namespace, *, is_system: bool) -> None:
    if chosen.target == "slurm":
        print(f"\nNext:  sbatch {chosen.output}")
        return
    unit = "trainops.target" if "TRAINOPS_BROKER_URL" in os.environ else "trainops.service"
    control = "systemctl" if is_system else "systemctl --user"
    print(f"\nNext:  {control} daemon-reload && {control} enable --now {unit}")
    if not is_system:
        print(f"       loginctl enable-linger {getpass.getuser()}   (runs without a login)")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{paths.COMMAND} install-service",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("target", nargs="?", choices=["systemd", "slurm"], default="systemd",
        help="what runs it (default: systemd)")  # fmt: skip
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument("--system", action="store_true", default=os.geteuid() == 0,
                       help="units of the machine (default for root)")  # fmt: skip
    whose.add_argument("--user", dest="system", action="store_false",
                       help="units of your own service manager (default for others)")  # fmt: skip
    add("--print", action="store_true", help="print the files, and write none")
    add("--run-as", metavar="USER", help="user of system units (default: of the data directory)")
    options.add_shared(parser)
    slurm = parser.add_argument_group("slurm")
    slurm.add_argument("--output", type=Path, default=Path("trainops-worker.sbatch"),
                       help="file to write (default: trainops-worker.sbatch)")  # fmt: skip
    slurm.add_argument(
        "--time", default=service_files.BATCH_TIME, help="time limit of a job (default: 04:00:00)"
    )
    slurm.add_argument("--nodes", type=options.positive, default=1, help="nodes of a job")
    slurm.add_argument("--gpus", type=options.natural, default=0, help="GPUs of each node")
    slurm.add_argument("--partition", default="", help="partition")
    return parser
