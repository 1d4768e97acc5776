"""The manifests of docker/kubernetes: what the program needs is in them."""

import shutil
import subprocess

import pytest
import yaml

from tests.journey.stack import ROOT
from trainops.thresholds import CONTAINER_GRACE_SECONDS

FOLDER = ROOT / "docker" / "kubernetes"


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    """The manifests as `kubectl apply -k` sends them; without kubectl, as they are written."""
    folder = tmp_path_factory.mktemp("manifests") / "kubernetes"
    shutil.copytree(FOLDER, folder)
    (folder / "secrets.env").write_text("TRAINOPS_SECRET_KEY=x\n")
    if shutil.which("kubectl"):
        command = ["kubectl", "kustomize", str(folder)]
        texts = [subprocess.run(command, capture_output=True, text=True, check=True).stdout]
    else:
        names = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
        texts = [(folder / name).read_text() for name in names]
    found = [each for text in texts for each in yaml.safe_load_all(text)]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def containers(rendered):
    pods = [each["spec"]["template"]["spec"] for (kind, _), each in rendered.items()
            if kind == "Deployment"]  # fmt: skip
    return [one for pod in pods for name in ("initContainers", "containers")
            for one in pod.get(name, [])]  # fmt: skip


def test_web_beat_and_workers_run_the_commands_of_the_image(rendered):
    commands = {each["name"]: each["args"][2] for each in containers(rendered)}
    assert commands == {
        "prepare": "trainops.launch.prepare",
        "web": "trainops.web",
        "beat": "celery",
        "worker": "celery",
    }


def test_containers_have_no_rights_and_write_only_to_volumes(rendered):
    for each in containers(rendered):
        confined = each["securityContext"]
        assert confined["readOnlyRootFilesystem"] is True
        assert confined["allowPrivilegeEscalation"] is False
        assert confined["capabilities"] == {"drop": ["ALL"]}
        mounts = {mount["mountPath"]: mount["name"] for mount in each["volumeMounts"]}
        shared = {"/dev/shm": "shm"} if each["name"] == "worker" else {}  # noqa: S108
        assert mounts == {"/data": "data", "/tmp": "tmp"} | shared  # noqa: S108


def test_workers_get_the_time_to_save_and_one_kind_has_a_gpu(rendered):
    gpus = {}
    for name in ("trainops-worker", "trainops-worker-gpu"):
        pod = rendered["Deployment", name]["spec"]["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] >= CONTAINER_GRACE_SECONDS
        (container,) = pod["containers"]
        gpus[name] = container["resources"]["limits"].get("nvidia.com/gpu")
    assert gpus == {"trainops-worker": None, "trainops-worker-gpu": 1}


def test_the_number_of_workers_follows_a_deployment_that_exists(rendered):
    (scaled,) = yaml.safe_load_all((FOLDER / "keda.yaml").read_text())
    assert ("Deployment", scaled["spec"]["scaleTargetRef"]["name"]) in rendered
