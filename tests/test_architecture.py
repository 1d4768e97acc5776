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
    (
        "operations",
        "apps/operations/models/operation.py",
        "from apps.operations.requests import services",
    ),
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


# Messages are named after what they report, a row after what it stores, recipes' parameters alike.
# A table is logged under the name that recipes' authors know; that of the tabular recipes is
# digested with their code.
SHARED = {
    "Succeeded", "Stopped", "Failed", "SaveFailed", "Checkpoint", "Subtask", "Parameters", "Table",
}  # fmt: skip


def top_classes(file):
    return [
        each.name for each in ast.parse(file.read_text()).body if isinstance(each, ast.ClassDef)
    ]


def test_a_class_name_has_one_meaning():
    """Client and command line, a distribution of their own, type the API's responses again."""
    places = {}
    for file in [*(ROOT / "trainops").rglob("*.py"), *(ROOT / "apps").rglob("*.py")]:
        parts = file.relative_to(ROOT).parts
        if parts[:2] in {("trainops", "client"), ("trainops", "cli"), ("trainops", "scaffold")}:
            continue
        for name in top_classes(file) if "migrations" not in parts else ():
            if name not in SHARED and not name.endswith(("Serializer", "Command")):
                places.setdefault(name, []).append("/".join(parts))
    doubled = {name: files for name, files in places.items() if len(files) > 1}
    assert doubled == {}, "give the less central class another name, or use the other one"


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
@pytest.mark.whole
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


# All views, the recipes of all kinds with their configs, and both tasks, where a module that
# computes cannot be imported.
OF_WEB = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"no module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
import {process}, django
django.setup()
import apps.operations.tasks, apps.workers.tasks
from django.urls import get_resolver
from trainops.kind import KINDS
from trainops.recipes import recipes

def views(patterns):
    for each in patterns:
        yield from views(each.url_patterns) if hasattr(each, "url_patterns") else [each.callback]

assert len(list(views(get_resolver().url_patterns))) > 100
for kind in KINDS:
    assert KINDS[kind].config
    list(recipes(kind))
"""
COMPUTING = {"torch", "opacus", "safetensors", "numba", "gymnasium", "scipy", "sklearn", "greenlet"}


@pytest.mark.slow
@pytest.mark.parametrize("process", ["trainops.wsgi", "trainops.celery"])
def test_web_worker_and_beat_run_where_torch_and_the_engines_are_missing(process):
    code = OF_WEB.format(process=process, missing=COMPUTING)
    env = os.environ | {"DJANGO_SETTINGS_MODULE": "trainops.settings"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env=env, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


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


MODE_OF_TORCH = ': MODE = "training"'  # the attribute of a module


def test_the_core_names_no_kind():
    named = re.compile(rf"[\"']({'|'.join(KINDS)})[\"']|kinds\.({'|'.join(KINDS)})\b")
    found = {
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in CORE
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if named.search(line)
    }
    found -= {each for each in found if each.endswith(MODE_OF_TORCH)}
    assert not found, found


# Kinds whose names are words of the field: "training" and "loop" are not theirs alone.
PLAIN_WORDS = {"training", "loop"}
OF_KINDS = re.compile(
    rf"(?<![a-z])({'|'.join(each for each in KINDS if each not in PLAIN_WORDS)})s?(?![a-z])"
    "|federated|reinforcement learning",
    re.IGNORECASE,
)
# Where the core does say such a word, and why.
SAID = {
    "trainops/cli/datasets.py": "examples/backtest.yaml",  # the name of a file
    "trainops/learning/modes.py": ".training",  # torch's name of the mode of a module
}


def identifiers(tree):
    """Yield the names in code, in lower case with underscores."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                yield re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def kinds_said(path, text):
    """Return what names a kind in the text of a file: words, and names in code."""
    said = SAID.get(str(path.relative_to(ROOT)), "")
    text = text.replace(said, "") if said else text
    lines = enumerate(text.splitlines(), 1)
    found = [f"{number}: {line.strip()}" for number, line in lines if OF_KINDS.search(line)]
    names = KINDS.keys() - {"loop"}
    if path.suffix == ".py" and any(each in text.lower() for each in names):
        found += [each for each in identifiers(ast.parse(text)) if names & {*each.split("_")}]
    return found


def test_no_word_or_name_of_the_core_is_of_a_kind():
    found = {path: said for path in CORE if (said := kinds_said(path, path.read_text()))}
    assert not found, found


@pytest.mark.parametrize(
    "line",
    ["# Of backtests only.", 'help = "An RL job"', "training_epoch_interval = 1",
     "class TrainingLimits: pass", "x.federated_part()", "def of_rl(): pass"],
)  # fmt: skip
def test_a_word_or_name_of_a_kind_is_found(line):
    assert kinds_said(ROOT / "trainops" / "thresholds.py", line)
    assert not kinds_said(ROOT / "trainops" / "thresholds.py", "# In training, as a world loop")


@pytest.mark.parametrize("path", SAID)
def test_an_exception_is_still_needed(path):
    assert SAID[path] in (ROOT / path).read_text()


def test_no_app_looks_a_model_of_another_up_by_name():
    found = [path for path in CORE if re.search(r"\bapps\.get_model\(", path.read_text())]
    assert not found, found


ASSEMBLERS = {
    "trainops/launch/backups.py",
    "trainops/launch/doctor.py",
    "trainops/launch/erase.py",
    "trainops/launch/prepare.py",
    "trainops/launch/signing_keys.py",
    "trainops/launch/upgrade.py",
    "trainops/web.py",
}


def test_only_what_assembles_the_apps_imports_them_by_name():
    """import-linter does not see an import by name, so each file that has one is listed.

    The processes that serve, prepare, save or diagnose an installation stand outside the layers,
    as settings and urls do: `trainops` may not import apps, but these must call them. They import
    them when they run, because Django must be set up first.
    """
    by_name = re.compile(r"\bimport_module\(\s*f?[\"']apps\.")
    found = {
        str(path.relative_to(ROOT))
        for folder in ("apps", "trainops")
        for path in (ROOT / folder).rglob("*.py")
        if by_name.search(path.read_text())
    }
    assert found == ASSEMBLERS


OF_SUBTASKS = [
    ROOT / "trainops/runtime/subtasks.py",
    ROOT / "trainops/process/subtask_client.py",
    ROOT / "trainops/process/protocol.py",
    *sorted((ROOT / "apps/operations/subtasks").glob("*.py")),
]
OF_FEDERATED = re.compile(
    r"(?<![a-z])(clients?|rounds?|servers?|epochs?|federated)(?![a-z])", re.IGNORECASE
)


@pytest.mark.parametrize("path", OF_SUBTASKS, ids=lambda path: path.stem)
def test_subtasks_are_described_without_the_words_of_federated_training(path):
    lines = enumerate(path.read_text().splitlines(), 1)
    found = [f"{number}: {line.strip()}" for number, line in lines if OF_FEDERATED.search(line)]
    assert found == []


OF_ONE_KIND = re.compile(
    r"federat|privacy|epsilon|noise|release|\brounds?\b|client|sample_?rate|\blevel", re.IGNORECASE
)
LEDGER = [
    ROOT / "trainops/runtime/ledger.py",
    ROOT / "trainops/runtime/ledger_fields.py",
    *(each for each in (ROOT / "apps/ledger").rglob("*.py")),
]


def test_the_ledger_has_no_word_of_the_kind_that_it_was_made_for():
    known = "PRIVACY_LEDGER_MISMATCH"  # a code that API users know
    found = {
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in LEDGER
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if OF_ONE_KIND.search(line.replace(known, ""))
    }
    assert len(LEDGER) > 9 and not found, found


# Where private names of torch are used outside of `fast/`, and why there is no public way.
PRIVATE_TORCH = {
    # torch.load neither returns the offsets of an archive's records nor checks them.
    "trainops/files/archive.py": {"torch._C"},
}


def private_torch_names(file):
    """Return the names like torch._C and torch.ops in the code of a file, imports included."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{each.name}" for each in node.names]
        else:
            continue
        matches = (re.match(r"torch\.(_(?!_)\w+|ops\b)", name) for name in names)
        found |= {each[0] for each in matches if each}
    return found


@pytest.mark.slow
def test_private_names_of_torch_are_only_in_fast_modules():
    files = [*(ROOT / "trainops").rglob("*.py"), *(ROOT / "apps").rglob("*.py")]
    used = {
        str(file.relative_to(ROOT)): names
        for file in files
        if file.parent.name != "fast" and (names := private_torch_names(file))
    }
    assert used == PRIVATE_TORCH


@pytest.mark.parametrize(
    "line",
    ["torch._foreach_add_(a, 1)", "aten = torch.ops.aten", "from torch._C import x",
     "from torch import _foreach_add_", "import torch._dynamo", "from torch.ops import aten"],
)  # fmt: skip
def test_a_private_name_of_torch_is_found(line, tmp_path):
    file = tmp_path / "module.py"
    file.write_text(f"import torch\nprint(torch.__version__, torch.add)\n{line}\n")
    assert len(private_torch_names(file)) == 1


FAST = sorted(
    each
    for folder in ("apps", "trainops")
    for each in (ROOT / folder).rglob("fast")
    if (each / "__init__.py").is_file()
)


def test_packages_with_fast_modules_are_found():
    assert FAST


@pytest.mark.parametrize("fast", FAST, ids=lambda fast: fast.parent.name)
def test_beside_fast_modules_is_a_plain_one(fast):
    modules = {*fast.glob("*.py")} - {fast / "__init__.py"}
    assert modules and not private_torch_names(fast.parent / "plain.py")
