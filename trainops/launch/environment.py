"""The virtual environment: made once, brought up to date when its two files change.

Standard library only: this runs before anything is installed.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn, TypedDict

from trainops.launch import hashes
from trainops.launch.checks import require_space
from trainops.launch.refusal import CannotStart
from trainops.paths import CLONE, COMMAND, ROOT

VENV = ROOT / ".venv"
INSTALL_BYTES = 3 * 1024**3
SHOWN_LINES = 12
INSTALLING = "Installing the packages (a few minutes the first time)"


def python(venv: Path = VENV) -> Path:
    return venv / "bin" / "python"


def is_active(venv: Path = VENV) -> bool:
    """Whether this interpreter is that environment's."""
    return Path(sys.prefix).resolve() == venv.resolve()


def is_usable() -> bool:
    """Whether the packages are here, however installed (an image, a person's own venv)."""
    return importlib.util.find_spec("django") is not None


def version() -> str:
    """Return the version of trainops: the clone's, or of what is installed."""
    return str(project(CLONE)["version"]) if CLONE else metadata.version("trainops")


def require_clone(command: str) -> None:
    """Raise CannotStart where trainops was installed by pip: tests and benchmarks are not in it."""
    if CLONE is None:
        raise CannotStart(
            f"`trainops {command}` needs a clone of the repository; trainops is installed in "
            f"{ROOT}. In a clone, run: python3 -m trainops {command}"
        )


ProjectTable = TypedDict(
    "ProjectTable",
    {
        "version": str,
        "requires-python": str,
        "dependencies": list[str],
        "optional-dependencies": dict[str, list[str]],
    },
)  # of pyproject.toml, as far as it is read here


def project(root: Path) -> ProjectTable:
    """The [project] table of pyproject.toml."""
    table: ProjectTable = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return table


def requirements(root: Path, extras: Sequence[str]) -> list[str]:
    """The project's direct dependencies, and those of the named extras, as pip takes them."""
    table = project(root)
    unknown = set(extras) - set(table["optional-dependencies"])
    if unknown:
        raise CannotStart(f"pyproject.toml has no extra {', '.join(sorted(unknown))}.")
    groups = [table["dependencies"], *(table["optional-dependencies"][e] for e in extras)]
    return [requirement for group in groups for requirement in group]


def digest(root: Path) -> str:
    """SHA-256 of the two files that decide what is installed."""
    content = b"\0".join(
        (root / name).read_bytes() for name in ("pyproject.toml", "constraints.txt")
    )
    return hashlib.sha256(content).hexdigest()


def is_current(root: Path, venv: Path, extras: Sequence[str]) -> bool:
    """Whether the stamp says that these files, with at least these extras, were installed."""
    try:
        stamp = json.loads((venv / "trainops-stamp.json").read_text())
    except (OSError, ValueError):
        return False
    installed = python(venv).exists() and stamp.get("digest") == digest(root)
    return installed and set(extras) <= set(stamp.get("extras", []))


def ensure(
    log_dir: Path, *, extras: Sequence[str] = (), root: Path = ROOT, venv: Path = VENV
) -> None:
    """Bring the environment up to date; nothing is done where the stamp matches.

    The extras of an earlier installation are kept. Raises CannotStart when it cannot be done.
    """
    if is_current(root, venv, extras):
        return
    if importlib.util.find_spec("ensurepip") is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise CannotStart(
            f"This Python has no venv module. On Debian: apt install python{version}-venv"
        )
    require_space(root, INSTALL_BYTES, "to install the packages")
    log_dir.mkdir(parents=True, exist_ok=True)
    with _one_installer(venv):
        if is_current(root, venv, extras):  # another process did it while this one waited
            return
        _make(venv, log_dir / "install.log")
        wanted = sorted({*extras, *_installed_extras(venv)})
        _install(root, venv, wanted, log_dir / "install.log")
        stamp = {"digest": digest(root), "extras": wanted}
        (venv / "trainops-stamp.json").write_text(json.dumps(stamp))


def enter(arguments: Sequence[str], venv: Path = VENV) -> NoReturn:
    """Become the environment's own Python, running the same command."""
    os.execv(python(venv), [str(python(venv)), "-m", "trainops", *arguments])


def require(arguments: Sequence[str]) -> None:
    """Be in the environment, running the same command. Raises CannotStart where there is none."""
    if python().exists() and not is_active():
        enter(arguments)
    if not is_usable():
        raise CannotStart(f"The environment does not exist yet. Create it with: {COMMAND} up")


def _installed_extras(venv: Path) -> list[str]:
    try:
        return list(json.loads((venv / "trainops-stamp.json").read_text()).get("extras", []))
    except (OSError, ValueError):
        return []


@contextmanager
def _one_installer(venv: Path) -> Iterator[None]:
    """Two first starts at once must not run pip on one environment."""
    venv.mkdir(parents=True, exist_ok=True)
    with (venv / "install.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Waiting for another installation of this environment …", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(venv: Path, log: Path) -> None:
    if python(venv).exists():
        return
    print(f"Creating the environment {venv}", flush=True)
    with log.open("wb") as output:
        made = subprocess.run(
            [sys.executable, "-m", "venv", str(venv)], stdout=output, stderr=output, check=False
        )
    if made.returncode:
        raise CannotStart(_failure("The environment could not be created", log))


def _install(root: Path, venv: Path, extras: Sequence[str], log: Path) -> None:
    """Let pip choose the versions, then install them, each file compared with its hashes."""
    started = time.monotonic()
    known = hashes.read(root)
    with TemporaryDirectory() as directory:
        report, wanted = Path(directory) / "report.json", Path(directory) / "requirements.txt"
        choice = ["--dry-run", "--report", str(report), "-c", str(root / "constraints.txt")]
        _pip(venv, [*choice, *requirements(root, extras)], log, "Choosing the packages")
        unpinned = requirements(root, sorted(hashes.UNLOCKED_EXTRAS & {*extras}))
        project = requirements(root, [])
        roots = hashes.named([each for each in unpinned if each not in project])
        locked, others = hashes.locked(json.loads(report.read_text()), known, roots)
        wanted.write_text("".join(f"{each}\n" for each in locked))
        if locked:
            _pip(venv, ["--no-deps", "--require-hashes", "-r", str(wanted)], log, INSTALLING)
        if others:
            print(f"Installed without a comparison of hashes: {', '.join(others)}", flush=True)
            _pip(venv, ["--no-deps", *others], log, INSTALLING)
    print(f"Installed the packages in {time.monotonic() - started:.0f} s.", flush=True)


def _pip(venv: Path, arguments: Sequence[str], log: Path, line: str) -> None:
    """Run `pip install` with its output in the log, and show a line. Raises CannotStart."""
    command = [str(python(venv)), "-m", "pip", "install", "--no-input", "--progress-bar", "off"]
    with log.open("ab") as output:
        pip = subprocess.Popen(
            [*command, "--disable-pip-version-check", *arguments], stdout=output, stderr=output
        )
        try:
            _show_progress(pip, log, line)
        finally:
            if pip.poll() is None:
                pip.kill()
                pip.wait()
    if pip.returncode:
        raise CannotStart(_failure("The packages could not be installed", log))


def _show_progress(pip: "subprocess.Popen[bytes]", log: Path, line: str) -> None:
    """One line that is rewritten on a terminal, and written once elsewhere."""
    live = sys.stdout.isatty()
    print(line, end="" if live else " …\n", flush=True)
    while True:
        try:
            pip.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            if live:
                print(f"\r\033[K{line}: {_progress(log)}", end="", flush=True)
            continue
        print("\r\033[K" if live else "", end="", flush=True)
        return


def _progress(log: Path) -> str:
    text = log.read_text(errors="replace")
    if summary := re.search(r"^Installing collected packages: (.*)$", text, re.MULTILINE):
        return f"installing {summary[1].count(',') + 1} packages …"
    found = re.findall(r"^Collecting (\S+)", text, re.MULTILINE)
    return f"{len(found)} found, {found[-1]} …" if found else "looking …"


def _failure(what: str, log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-SHOWN_LINES:]
    shown = "\n".join(f"  | {line}" for line in lines)
    return f"{what}. The last lines of {log}:\n{shown}\n{_remedy(shown)}"


def _remedy(output: str) -> str:
    if "No space left" in output:
        return "The disk is full: free some space and run the same command again."
    if "DO NOT MATCH THE HASHES" in output:
        return (
            "A file is not one that hashes.txt names: it was altered on the way, or the package "
            "index has builds of its own. Add its hash to hashes.txt only if you trust that index."
        )
    if re.search(r"Temporary failure|ConnectionError|timed out|Max retries|NewConnection", output):
        return (
            "The package index could not be reached: check the network, then run the "
            "same command again."
        )
    return "Fix the problem in the last line, then run the same command again."
