"""The container files, read as what they say: no engine is needed."""

import http.server
import re
import shlex
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
OURS = ("migrate", "web", "worker", "beat")


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
    assert set(compose["services"]) == {"postgres", "redis", *OURS}
    known = {
        "image", "build", "environment", "secrets", "volumes", "security_opt", "cap_drop", "init",
        "stop_grace_period", "stop_signal", "restart", "healthcheck", "command", "depends_on",
        "ports",
    }  # fmt: skip
    for name, service in compose["services"].items():
        assert set(service) <= known, name
        assert service["stop_grace_period"] == "30s", name


def test_everything_of_ours_runs_the_same_image_without_rights(compose):
    for name in OURS:
        service = compose["services"][name]
        assert service["image"] == "trainops"
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "data:/data" in service["volumes"]
    assert (DOCKER / compose["services"]["web"]["build"]["context"]).resolve() == ROOT


def test_nothing_starts_before_what_it_needs(compose):
    services = compose["services"]
    assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert services["migrate"]["restart"] == "no"
    for name in ("web", "worker", "beat"):
        needs = services[name]["depends_on"]
        assert needs["migrate"]["condition"] == "service_completed_successfully"
        assert needs["redis"]["condition"] == "service_healthy"
    for name in ("postgres", "redis", "web"):
        assert services[name]["healthcheck"]["test"]


def test_no_secret_stands_in_a_file_that_is_committed(compose):
    for name, service in compose["services"].items():
        for secret in service.get("secrets", []):
            assert compose["secrets"][secret]["file"].startswith("./secrets/")
        for key, value in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|TOKEN", key):
                assert key.endswith("_FILE"), f"{name}: {key}"
                assert value.removeprefix("/run/secrets/") in service["secrets"]
            assert not re.search(r"://[^/@]*:[^/@]*@", str(value)), f"{name}: {key}"
    assert (DOCKER / ".gitignore").read_text().split() == ["/secrets/"]


def test_volumes_are_declared_and_images_have_versions(compose):
    mounted = {v.split(":")[0] for s in compose["services"].values() for v in s.get("volumes", [])}
    assert mounted == set(compose["volumes"])
    for name in ("postgres", "redis"):
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
    assert all((ROOT / each).exists() for each in allowed)
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


def test_plain_http_is_published_on_this_machine_only(compose):
    published = [port for each in compose["services"].values() for port in each.get("ports", ())]
    assert published and all(port.startswith("127.0.0.1:") for port in published)
