import json
import stat

import pytest

from trainops.client import server
from trainops.client.problems import ExitCode, Problem
from trainops.client.server import ServerAddress


@pytest.fixture(autouse=True)
def data_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINOPS_DATA_DIR", str(tmp_path))
    for name in ("TRAINOPS_URL", "TRAINOPS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_without_any_word_it_is_the_server_on_this_machine():
    assert server.find() == ServerAddress("http://127.0.0.1:8000")


def test_what_up_wrote_is_found(data_dir):
    (data_dir / "cli.json").write_text(json.dumps({"url": "http://box:9/", "token": "t"}))
    assert server.find() == ServerAddress("http://box:9", "t")


def test_options_win_over_the_environment_and_that_over_the_file(data_dir, monkeypatch):
    server.remember(ServerAddress("http://file:1", "file"))
    monkeypatch.setenv("TRAINOPS_URL", "http://env:2")
    monkeypatch.setenv("TRAINOPS_TOKEN", "env")
    assert server.find() == ServerAddress("http://env:2", "env")
    assert server.find(url="http://option:3/", token="option") == ServerAddress(
        "http://option:3", "option"
    )


def test_a_remembered_token_goes_to_no_other_server(data_dir):
    server.remember(ServerAddress("http://file:1", "secret"))
    assert server.find(url="http://elsewhere:1").token == ""
    assert server.find(url="http://file:1/").token == "secret"


def test_the_file_is_its_owners_alone(data_dir):
    path = server.remember(ServerAddress("http://file:1", "secret"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    server.remember(ServerAddress("http://file:2", "secret"))
    assert server.find().url == "http://file:2"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"url": "http://a"}', "\x00"])
def test_a_broken_file_is_named(data_dir, content):
    (data_dir / "cli.json").write_text(content)
    with pytest.raises(Problem, match=r"cli\.json cannot be used") as problem:
        server.find()
    assert problem.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize("url", ["box", "ftp://box", "http://", "http:///x", "box:8000"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(Problem, match="is not a server address"):
        server.find(url=url)


def test_an_ipv6_address_of_this_machine_is_local():
    assert ServerAddress("http://[::1]:8000").is_local
    assert not ServerAddress("http://10.0.0.1:8000").is_local
