"""What is in the way is said in one line, with exit code 2, before anything is started."""

import ast
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trainops import __main__ as entry_point
from trainops.launch import checks, data_directory, options
from trainops.launch.options import EVERYWHERE
from trainops.launch.refusal import CannotStart

ROOT = Path(__file__).resolve().parents[2]


def launch(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "trainops", *arguments],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def refusal(*arguments: str, **env: str) -> str:
    done = launch("up", "--no-install", *arguments, **env)
    assert done.returncode == 2, done
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_an_old_python_can_read_the_launcher_and_names_a_supported_one(monkeypatch):
    ast.parse(Path(entry_point.__file__).read_text(), feature_version=(3, 6))
    monkeypatch.setattr(entry_point.shutil, "which", lambda name: name == "python3.12")
    assert entry_point.complaint((3, 9, 2), "posix") == (
        "trainops needs Python 3.11 or newer; this is 3.9. Try: python3.12 -m trainops up"
    )
    monkeypatch.setattr(entry_point.shutil, "which", lambda name: None)
    assert entry_point.complaint((3, 10), "posix").endswith("Install a newer Python first.")
    assert entry_point.complaint((3, 11), "posix") == ""
    assert "WSL" in entry_point.complaint((3, 12), "nt")


def test_without_a_command_there_is_a_list_of_commands():
    done = launch()
    assert done.returncode == 0
    for command in ("up", "test", "run", "cancel", "resume"):
        assert f"  {command}" in done.stdout


def test_the_list_names_every_command_of_the_command_line():
    from trainops.cli.app import build
    from trainops.launch.commands import HELP, OURS

    app = build()
    names = {command.name for command in app.registered_commands}
    names |= {group.name for group in app.registered_groups}
    entries = [line[2:19] for line in HELP.splitlines() if line.startswith("  ")]
    listed = {name for entry in entries for name in entry.replace(",", " ").split()}
    assert listed == names | set(OURS)


def test_help_of_up_needs_nothing_installed():
    bare = [sys.executable, "-I", "-S", "-c"]
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from trainops.launch import commands; "
    code += "sys.exit(commands.main(['up', '--help']))"
    done = subprocess.run([*bare, code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--data-dir" in done.stdout


def test_a_bad_argument_is_a_usage_error(tmp_path):
    done = launch("up", "--port", "70000", "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert "70000 is not a port" in done.stderr


def test_a_busy_port(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = refusal("--data-dir", str(tmp_path), "--port", str(port))
    assert line == (f"Port {port} is in use by another program. Choose another with --port.\n")


def test_an_address_that_is_not_ours(tmp_path):
    line = refusal("--data-dir", str(tmp_path), "--host", "192.0.2.7")
    assert line.startswith("Cannot listen on 192.0.2.7 port 8000")


def test_workers_alone_need_the_addresses_of_database_and_broker(tmp_path):
    arguments = ("--only-workers", "--data-dir", str(tmp_path))
    line = refusal(*arguments, TRAINOPS_DATABASE_URL="", TRAINOPS_BROKER_URL="redis://elsewhere")
    assert "set TRAINOPS_DATABASE_URL to the values of its first machine" in line


def test_workers_alone_take_over_no_storage(tmp_path):
    done = launch("up", "--only-workers", "--take-over-storage", "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert "--take-over-storage is for the machine with web and beat" in done.stderr


@pytest.mark.slow
def test_workers_alone_do_not_start_on_a_database_of_another_version(tmp_path):
    """Nor do they migrate it: the machine with the web server does."""
    database = tmp_path / "other.sqlite3"
    line = refusal(
        "--only-workers",
        "--data-dir",
        str(tmp_path),
        TRAINOPS_DATABASE_URL=f"sqlite:///{database}",
        TRAINOPS_BROKER_URL="redis://127.0.0.1:1/0",
    )
    assert "The database is older than this trainops" in line


def test_a_data_directory_of_a_newer_version(tmp_path):
    newer = {"format": data_directory.FORMAT + 1, "trainops": "9.1"}
    (tmp_path / "version.json").write_text(json.dumps(newer))
    line = refusal("--data-dir", str(tmp_path))
    assert f"The data directory {tmp_path} was written by trainops 9.1 (format 2)" in line


def test_a_version_file_is_written_whole_and_accepted_again(tmp_path):
    data_directory.require_not_newer(tmp_path)
    data_directory.write_version(tmp_path, "0.1.0")
    data_directory.require_not_newer(tmp_path)
    (tmp_path / "version.json").write_text("{")
    with pytest.raises(CannotStart, match="is not a readable version file"):
        data_directory.require_not_newer(tmp_path)


def test_a_second_start_on_the_same_directory_names_the_first(tmp_path):
    with data_directory.owned(tmp_path, "http://127.0.0.1:8123"):
        line = refusal("--data-dir", str(tmp_path), "--port", str(unused_port()))
    assert line == (
        f"trainops is already running with the data directory {tmp_path} (process {os.getpid()}) "
        "at http://127.0.0.1:8123.\n"
    )
    with data_directory.owned(tmp_path, "http://127.0.0.1:8124"):  # free again
        pass


def test_a_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    line = refusal("--data-dir", str(tmp_path / "file"))
    assert "is not writable" in line
    assert "--data-dir" in line


def test_a_full_disk(tmp_path):
    with pytest.raises(CannotStart) as full:
        checks.require_space(tmp_path, 3 * 1024**3, "to install", free=lambda _: 250 * 1024**2)
    assert str(full.value) == (
        f"The disk is full: 250 MiB free at {tmp_path}, 3.0 GiB required to install."
    )
    checks.require_space(tmp_path / "not" / "there" / "yet", 1, "to run")


def test_options_say_where_the_page_is():
    assert options.parse([]).url == "http://127.0.0.1:8000"
    assert options.parse(["--host", EVERYWHERE[0], "--port", "80"]).url == "http://127.0.0.1:80"
    assert options.parse(["--host", "::"]).url == "http://[::1]:8000"
    assert options.parse(["--host", "10.1.2.3"]).url == "http://10.1.2.3:8000"
