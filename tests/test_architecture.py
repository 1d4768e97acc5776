"""The arrows point one way, and the tool that says so would notice if one did not."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainops.kind import KINDS

ROOT = Path(__file__).resolve().parents[1]
PLANTED = [
    ("direction", "apps/checkpoints/services.py", "from apps.operations import models"),
    ("apps", "apps/novelties/__init__.py", ""),
    ("operations", "apps/operations/models.py", "from apps.operations.requests import services"),
    ("trainops", "trainops/runtime/job.py", "from trainops.process import protocol"),
    ("core", "trainops/files/known.py", "from trainops.kinds.training.files import file"),
    ("kinds", "trainops/kinds/federated/job.py", "from trainops.kinds.training import job"),
    ("no-django", "trainops/runtime/loop.py", "import django.conf"),
    ("torch", "apps/operations/requests/services.py", "from trainops.runtime import loop"),
    ("command-line", "trainops/cli/out.py", "import django"),
]


WITHOUT_KINDS = ("trainops/files", "trainops/cli", "apps/operations")


def literals(file):
    """Return the strings of a module and their lines."""
    nodes = ast.walk(ast.parse(file.read_text()))
    return [(n.value, n.lineno) for n in nodes if isinstance(n, ast.Constant)]


@pytest.mark.parametrize("folder", WITHOUT_KINDS)
def test_no_kind_is_named_where_kinds_are_only_described(folder):
    files = [each for each in (ROOT / folder).rglob("*.py") if "migrations" not in each.parts]
    assert files
    named = [
        f"{file.relative_to(ROOT)}:{line}: {value!r}"
        for file in files
        for value, line in literals(file)
        if value in KINDS
    ]
    assert named == []


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    root = tmp_path_factory.mktemp("copy")
    for name in ("apps", "trainops"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


def lint(root, contract):
    command = [Path(sys.executable).with_name("lint-imports"), "--contract", contract]
    command += ["--cache-dir", root / ".cache"]
    env = os.environ | {"PYTHONPATH": str(root)}
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(("contract", "path", "line"), PLANTED)
def test_a_planted_violation_breaks_the_contract(copy, contract, path, line):
    assert lint(copy, contract).returncode == 0
    file = copy / path
    before = file.read_text() if file.exists() else None
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"{before or ''}\n{line}\n")
    try:
        assert lint(copy, contract).returncode == 1
    finally:
        if before is None:
            shutil.rmtree(file.parent)
        else:
            file.write_text(before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "modules",
    [
        "trainops.runtime.loop, trainops.kinds.training.job, trainops.process.attempt_process",
        "trainops.process.forkserver",
    ],
)
def test_engines_import_without_django(modules):
    code = f"import sys, {modules}; sys.exit('django' in sys.modules or 'celery' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("process", ["trainops.wsgi", "trainops.celery"])
def test_web_worker_and_beat_import_without_torch(process):
    code = (
        f"import sys, {process}, django; django.setup();"
        "import apps.operations.api.operations, apps.dashboard.urls, apps.operations.tasks;"
        "sys.exit('torch' in sys.modules)"
    )
    env = os.environ | {"DJANGO_SETTINGS_MODULE": "trainops.settings"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, check=False)
    assert done.returncode == 0


def _is_outside(path):
    """Whether a file is of a kind, of a migration, or the same file by another way."""
    is_of_kind = ROOT / "trainops" / "kinds" in path.parents
    is_linked = any(each.is_symlink() for each in path.parents if ROOT in each.parents)
    return is_of_kind or is_linked or "migrations" in path.parts


CORE = [
    path
    for folder in ("apps", "trainops", "templates", "static/js")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".html", ".js") and path.is_file() and not _is_outside(path)
]


def test_the_core_names_no_kind():
    named = re.compile(rf"[\"']({'|'.join(KINDS)})[\"']|kinds\.({'|'.join(KINDS)})\b")
    found = {
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in CORE
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if named.search(line)
    }
    assert not found, found


def test_no_app_looks_a_model_of_another_up_by_name():
    found = [path for path in CORE if re.search(r"\bapps\.get_model\(", path.read_text())]
    assert not found, found
