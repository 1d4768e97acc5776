"""Servers by name: what is used when, where tokens go, and the commands."""

import stat

import pytest

from trainops.client import contexts, server
from trainops.client.contexts import Contexts, ServerContext
from trainops.client.handles import Client
from trainops.client.problems import ExitCode, Problem
from trainops.client.server import ServerAddress

LAB = "https://lab.example.org"


@pytest.fixture(autouse=True)
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TRAINOPS_DATA_DIR", str(tmp_path / "var"))
    for name in ("TRAINOPS_URL", "TRAINOPS_TOKEN", "TRAINOPS_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "config" / "trainops" / "contexts.json"


@pytest.fixture
def saved(config):
    contexts.write(
        Contexts(
            "lab", {"lab": ServerContext(LAB, "lab's"), "new": ServerContext("http://new:8000")}
        )
    )
    server.remember(ServerAddress("http://box:9", "box's"))


def test_the_file_is_its_owners_alone(saved, config):
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert stat.S_IMODE(config.parent.stat().st_mode) == 0o700
    config.chmod(0o644)
    contexts.write(contexts.read())
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert [each.name for each in config.parent.iterdir()] == [config.name]


def test_a_context_does_not_show_its_token():
    assert "secret" not in repr(Contexts("lab", {"lab": ServerContext(LAB, "secret")}))


@pytest.mark.parametrize(
    ("given", "environment", "found"),
    [
        ({}, {}, (LAB, "lab's", "lab")),
        ({"context": "new"}, {}, ("http://new:8000", "", "new")),
        ({"context": "local"}, {}, ("http://box:9", "box's", "")),
        ({"url": "http://box:9"}, {}, ("http://box:9", "box's", "")),
        ({"url": LAB}, {}, (LAB, "", "")),
        ({"token": "mine"}, {}, (LAB, "mine", "lab")),
        ({}, {"TRAINOPS_URL": "http://box:9/"}, ("http://box:9", "box's", "")),
        ({}, {"TRAINOPS_TOKEN": "other's"}, (LAB, "lab's", "lab")),
        ({}, {"TRAINOPS_CONTEXT": "new"}, ("http://new:8000", "", "new")),
        ({}, {"TRAINOPS_CONTEXT": "local"}, ("http://box:9", "box's", "")),
        (
            {"context": "lab"},
            {"TRAINOPS_URL": "http://box:9", "TRAINOPS_TOKEN": "t", "TRAINOPS_CONTEXT": "new"},
            (LAB, "lab's", "lab"),
        ),
    ],
)
def test_the_server_that_is_used_and_its_token(saved, monkeypatch, given, environment, found):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert server.find(**given) == ServerAddress(*found)


def test_two_answers_to_which_server_are_refused(saved, monkeypatch):
    with pytest.raises(Problem, match="--url and --context"):
        server.find(url=LAB, context="lab")
    monkeypatch.setenv("TRAINOPS_URL", LAB)
    monkeypatch.setenv("TRAINOPS_CONTEXT", "lab")
    with pytest.raises(Problem, match="TRAINOPS_URL and TRAINOPS_CONTEXT"):
        server.find()


def test_the_python_client_takes_a_context(saved):
    with Client(context="new") as client:
        assert client.api.server.url == "http://new:8000"
    with pytest.raises(Problem, match="No context 'none'; allowed: local, lab, new"):
        Client(context="none")


def test_a_sign_in_is_saved_in_its_context(saved):
    server.remember(ServerAddress("http://new:8000", "fresh", "new"))
    assert contexts.read().named["new"].token == "fresh"
    assert contexts.read().named["lab"].token == "lab's"
    assert server.find(context="local").token == "box's"


@pytest.mark.parametrize("content", ["", "[]", '{"contexts": 1}', '{"contexts": {"a": {}}}'])
def test_a_broken_file_is_named_and_its_content_is_not(saved, config, content):
    config.write_text(content)
    with pytest.raises(Problem, match=r"contexts\.json cannot be used") as problem:
        server.find()
    assert problem.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize("name", ["local", "", "-x", "a b", "../a", "a" * 65])
def test_a_name_that_cannot_be_typed_is_refused(name):
    with pytest.raises(Problem, match="allowed: up to 64 letters"):
        Contexts().added(name, ServerContext(LAB))


def test_removing_the_current_context_makes_local_the_current_one():
    found = Contexts("b", {"a": ServerContext(LAB), "b": ServerContext(LAB)})
    assert found.removed("a").current == "b"
    assert found.removed("b") == Contexts("", {"a": ServerContext(LAB)})
    with pytest.raises(Problem) as problem:
        found.added("a", ServerContext(LAB))
    assert problem.value.exit_code == ExitCode.CONFLICT


def test_the_commands_add_use_and_remove_a_server(cli, environment, monkeypatch):
    url, token = environment["TRAINOPS_URL"], environment["TRAINOPS_TOKEN"]
    assert cli("context", "add", "lab").exit_code == ExitCode.USAGE
    ran = cli("context", "add", "lab", "--url", url)
    assert (ran.exit_code, ran.stdout) == (ExitCode.OK, f"lab  {url}\n")
    monkeypatch.setenv("TRAINOPS_USERNAME", "ana")
    monkeypatch.setenv("TRAINOPS_PASSWORD", "correct horse")
    assert cli("login", "--context", "lab").exit_code == ExitCode.OK
    made = contexts.read().named["lab"].token
    assert made and made != token
    monkeypatch.delenv("TRAINOPS_URL")
    monkeypatch.setenv("TRAINOPS_TOKEN", "wrong")
    assert cli("context", "use", "lab").exit_code == ExitCode.OK
    assert cli("ls", "-o", "json").json == []
    shown = cli("context", "ls")
    assert [line.split()[0] for line in shown.stdout.splitlines()[1:]] == ["local", "*"]
    everything = cli("context", "ls", "-o", "json").stdout + shown.stdout
    assert made not in everything and "wrong" not in everything
    ran = cli("context", "rm", "lab")
    assert "Later commands use local." in ran.stderr
    assert contexts.read() == Contexts()
