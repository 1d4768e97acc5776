"""`install-service`: units that systemd accepts, and files of others that it leaves alone."""

import os
import re
import shlex
import shutil
import subprocess
from configparser import RawConfigParser

import pytest

from trainops.launch import service, service_files
from trainops.launch.commands import main

STORES = {
    "TRAINOPS_BROKER_URL": "redis://broker:6379/0",
    "TRAINOPS_DATABASE_URL": "postgresql://ada:it's $HOME%20`x`@db/trainops",
}


@pytest.fixture
def install(tmp_path, monkeypatch, capsys):
    """Run the command; returns exit code and output. Its files are below the directory."""
    for name in [*os.environ]:
        if name.startswith("TRAINOPS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)

    def run(*arguments, **environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        data_dir = ["--data-dir", str(tmp_path / "a data %dir")]
        code = main(["install-service", *arguments, *data_dir])
        return code, "".join(capsys.readouterr())

    run.units = tmp_path / "config" / "systemd" / "user"
    run.env_file = tmp_path / "config" / "trainops" / "service.env"
    return run


def unit(path):
    parser = RawConfigParser(strict=False, delimiters="=", comment_prefixes="#")
    parser.optionxform = str
    parser.read(path)
    return parser


def verify(units, tmp_path, *names):
    """Have systemd judge the units, where it is installed."""
    if not (tool := shutil.which("systemd-analyze")):
        return
    (tmp_path / "run").mkdir(exist_ok=True)
    env = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path / "run")}
    command = [tool, "--user", "verify", *(str(units / name) for name in names)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if "trainops" in line]
    assert (ours, done.returncode) == ([], 0)


def test_web_beat_and_each_worker_get_a_unit(install, tmp_path):
    code, said = install("--user", "--workers", "3", **STORES)
    assert code == 0
    names = ["trainops-beat.service", "trainops-web.service", "trainops-worker@.service",
             "trainops.target"]  # fmt: skip
    assert sorted(each.name for each in install.units.iterdir()) == names
    assert all(f"wrote  {install.units / name}" in said for name in names)
    assert "systemctl --user enable" not in said.splitlines()[0]
    wanted = unit(install.units / "trainops.target")["Unit"]["Wants"].split()
    assert {f"trainops-worker@{n}.service" for n in (1, 2, 3)} < {*wanted}
    worker = unit(install.units / "trainops-worker@.service")["Service"]
    assert "celery --app trainops.celery worker" in worker["ExecStart"]
    assert (worker["KillMode"], worker["OOMPolicy"]) == ("mixed", "continue")
    assert int(worker["TimeoutStopSec"]) > 25 + 2  # its watchdog
    verify(install.units, tmp_path, "trainops.target", "trainops-worker@1.service",
           "trainops-web.service", "trainops-beat.service")  # fmt: skip


def test_the_embedded_stores_are_in_the_one_unit_of_up(install, tmp_path):
    code, said = install("--user", "--port", "8123")
    assert code == 0 and "enable --now trainops.service" in said
    assert [each.name for each in install.units.iterdir()] == ["trainops.service"]
    command = shlex.split(unit(install.units / "trainops.service")["Service"]["ExecStart"])
    assert command[command.index("--data-dir") + 1].endswith("a data %%dir")
    assert command[command.index("--port") + 1] == "8123"
    verify(install.units, tmp_path, "trainops.service")


def test_workers_with_an_end_are_not_started_again_after_it(install):
    install("--user", "--only-workers", "--until", "04:30", "--idle-exit", "10m", **STORES)
    assert not (install.units / "trainops-web.service").exists()
    text = (install.units / "trainops-worker@.service").read_text()
    assert "Environment=TRAINOPS_WORKER_UNTIL=04:30\n" in text
    assert "Environment=TRAINOPS_WORKER_IDLE_EXIT=10m\n" in text
    assert "Restart=on-failure\n" in text


def test_the_environment_is_private_and_means_the_same_to_a_shell(install):
    install("--user", TRAINOPS_TOKEN="secret", TRAINOPS_WORKER_KINDS="training", **STORES)
    assert install.env_file.stat().st_mode & 0o777 == 0o600
    script = f'. {shlex.quote(str(install.env_file))}; printf %s "$TRAINOPS_DATABASE_URL"'
    shown = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout == STORES["TRAINOPS_DATABASE_URL"]
    text = install.env_file.read_text()
    assert "TRAINOPS_TOKEN" not in text and "TRAINOPS_WORKER_KINDS=training" in text


def test_a_changed_file_is_not_overwritten_and_nothing_is_written(install):
    install("--user", **STORES)
    beat = install.units / "trainops-beat.service"
    beat.write_text(beat.read_text().replace("RestartSec=5", "RestartSec=9"))
    before = {path: path.read_text() for path in install.units.iterdir()}
    code, said = install("--user", "--workers", "5")
    assert code == 2 and f"{beat} was changed" in said
    assert {path: path.read_text() for path in install.units.iterdir()} == before
    beat.unlink()
    code, said = install("--user", "--workers", "5")
    assert code == 0 and "unchanged" in said  # the web's unit
    assert "worker@5" in (install.units / "trainops.target").read_text()


def test_print_shows_the_files_without_the_values_and_writes_nothing(install):
    code, said = install("--user", "--print", **STORES)
    assert code == 0 and "ExecStart=" in said
    assert "ada:" not in said
    assert not install.units.exists() and not install.env_file.exists()


def test_system_units_run_as_the_owner_of_the_data(install, tmp_path, monkeypatch):
    monkeypatch.setattr(service, "SYSTEM_UNITS", tmp_path / "etc")
    monkeypatch.setattr(service, "SYSTEM_CONFIG", tmp_path / "etc-config")
    install("--system", "--run-as", "nobody", **STORES)
    found = unit(tmp_path / "etc" / "trainops-web.service")
    assert found["Service"]["User"] == "nobody"
    assert found["Unit"]["After"] == "network-online.target"
    target = unit(tmp_path / "etc" / "trainops.target")
    assert target["Install"]["WantedBy"] == "multi-user.target"


def test_several_lines_and_missing_stores_are_refused(install):
    code, said = install("--user", TRAINOPS_SECRET_KEY="a\nb")
    assert code == 2 and "TRAINOPS_SECRET_KEY has several lines" in said
    code, said = install("slurm")
    assert code == 2 and "TRAINOPS_DATABASE_URL" in said


def test_the_batch_script_asks_for_what_is_given(install, tmp_path):
    wanted = ["--gpus", "4", "--nodes", "2", "--time", "01:00:00", "--partition", "night"]
    code, _ = install("slurm", *wanted, **STORES)
    text = (tmp_path / "trainops-worker.sbatch").read_text()
    assert code == 0
    for each in ("--gpus-per-node=4", "--nodes=2", "--time=01:00:00", "--partition=night",
                 "--signal=B:USR1@90", "--requeue"):  # fmt: skip
        assert f"#SBATCH {each}\n" in text
    assert text.startswith("#!/bin/bash\n") and not re.search(r"@[A-Z_]+@", text)
    subprocess.run(["bash", "-n", str(tmp_path / "trainops-worker.sbatch")], check=True)
    assert service_files.is_unchanged(text)
    assert not service_files.is_unchanged(text.replace("night", "day"))


@pytest.mark.parametrize(
    "arguments",
    [["--until", "25:99"], ["--idle-exit", "0m"], ["slurm", "--nodes", "0"], ["docker"]],
)
def test_wrong_options_are_refused(install, arguments):
    with pytest.raises(SystemExit) as ended:
        install(*arguments)
    assert ended.value.code == 2
