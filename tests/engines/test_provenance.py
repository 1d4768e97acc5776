"""The code of a recipe is recorded in checkpoints, and compared at a resume."""

import importlib
import re
import shutil
import subprocess
import sys

import pytest

from tests.engines.contract import ScriptedSupervisor
from tests.engines.counting import CountingJob
from trainops.runtime import provenance
from trainops.runtime.checkpoint.store import Candidate, CheckpointPolicy, CheckpointStore
from trainops.runtime.errors import NotExact
from trainops.runtime.loop import Failed, Succeeded, run
from trainops.version import VERSION

NAMES = ("someones_recipe.train:build",)
FILES = {
    "someones_recipe/__init__.py": "",
    "someones_recipe/train.py": "import numpy, torch\nfrom someones_recipe.parts import net\n",
    "someones_recipe/parts/__init__.py": "",
    "someones_recipe/parts/net.py": "from yaml import safe_load\n",
    "someones_recipe/unused.py": "",
    "someones_recipe_too.py": "",
}


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A recipe's package, imported, beside a module that is not part of it."""
    for name, text in FILES.items():
        path = tmp_path / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    imported(tmp_path / "code", monkeypatch, "someones_recipe.train", "someones_recipe_too")
    yield tmp_path / "code"
    for name in [each for each in sys.modules if each.startswith("someones_")]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def _no_code_of_other_tests(monkeypatch):
    monkeypatch.setattr(provenance, "_running", None)
    provenance.code_of.cache_clear()


def code():
    """Return the code as a new process would find it."""
    provenance.code_of.cache_clear()
    return provenance.code_of(NAMES)


def imported(directory, monkeypatch, *names):
    monkeypatch.syspath_prepend(directory)
    for name in names:
        importlib.import_module(name)


def test_the_files_are_the_imported_modules_of_the_package(root):
    assert list(code()["files"]) == [
        "someones_recipe/__init__.py",
        "someones_recipe/parts/__init__.py",
        "someones_recipe/parts/net.py",
        "someones_recipe/train.py",
    ]


def test_a_module_without_a_package_has_the_others_of_its_directory(root):
    code = provenance.code_of(("someones_recipe_too:build",))
    assert "someones_recipe_too.py" in code["files"]
    assert "someones_recipe/train.py" in code["files"]


def test_an_installed_module_has_no_others(tmp_path, monkeypatch):
    directory = tmp_path / "site-packages"
    directory.mkdir()
    for name in ("someones_module", "someones_other"):
        (directory / f"{name}.py").write_text("")
    imported(directory, monkeypatch, "someones_module", "someones_other")
    assert list(provenance.code_of(("someones_module:build",))["files"]) == ["someones_module.py"]


def test_a_recipe_of_trainops_has_the_recipes_beside_it_and_not_the_engine():
    importlib.import_module("trainops.kinds.loop.recipes.digits_loop")
    importlib.import_module("trainops.kinds.loop.job")
    files = provenance.code_of(("trainops.kinds.loop.recipes.digits_loop:train",))["files"]
    assert {"recipes/digits.py", "recipes/digits_loop.py"} <= files.keys()
    assert all(name.startswith("recipes/") for name in files)
    assert provenance.code_of(("trainops.kinds.loop.job:LoopJob",)) is None


def test_the_packages_are_those_that_the_files_import(root):
    packages = code()["packages"]
    assert packages.keys() == {"numpy", "trainops", "yaml"}
    assert packages["numpy"] == sys.modules["numpy"].__version__


@pytest.fixture
def git(root):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")

    def git(*arguments, cwd=root):
        name = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *name, *arguments], cwd=cwd, check=True, capture_output=True)

    return git


def commit_all(git, cwd):
    git("init", cwd=cwd)
    git("add", "*.py", cwd=cwd)
    git("commit", "-m", "one", cwd=cwd)


def test_the_commit_says_whether_files_differ_from_it(root, git):
    assert "commit" not in code()
    commit_all(git, root)
    commit = code()["commit"]
    assert len(commit) == 12
    (root / "someones_recipe/train.py").write_text("changed = True\n")
    assert code()["commit"] == f"{commit} (modified)"


def test_what_python_compiles_is_no_change(root, git):
    commit_all(git, root)
    for directory in ("someones_recipe", "someones_recipe/parts"):
        (root / directory / "__pycache__").mkdir(exist_ok=True)
        (root / directory / "__pycache__/net.cpython-311.pyc").write_bytes(b"")
    assert len(code()["commit"]) == 12
    (root / "someones_recipe/parts/more.py").write_text("")
    assert code()["commit"].endswith(" (modified)")


@pytest.fixture
def namespace(tmp_path, monkeypatch):
    """A recipe's package without __init__.py, of which two directories have a part each."""
    files = {
        "first/someones_space/zoo/train.py": "import someones_space.parts.net\n",
        "first/someones_space/parts/net.py": "",
        "second/someones_space/more.py": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path / "second")
    names = ("someones_space.zoo.train", "someones_space.more")
    imported(tmp_path / "first", monkeypatch, *names)
    yield tmp_path
    for name in [each for each in sys.modules if each.startswith("someones_")]:
        del sys.modules[name]


IN_SPACE = ("someones_space.zoo.train:build",)


def test_packages_without_init_have_the_files_of_all_their_directories(namespace):
    files = provenance.code_of(IN_SPACE)["files"]
    assert list(files) == [
        "someones_space/more.py", "someones_space/parts/net.py", "someones_space/zoo/train.py",
    ]  # fmt: skip


@pytest.mark.parametrize("changed", ["first/someones_space/zoo/train.py",
                                     "second/someones_space/more.py"])  # fmt: skip
def test_changed_files_of_packages_without_init_are_found(namespace, changed):
    before = {"code": provenance.code_of(IN_SPACE)}
    assert provenance.changed_on_disk(IN_SPACE, before) == []
    (namespace / changed).write_text("changed = True\n")
    assert provenance.changed_on_disk(IN_SPACE, before) == [changed.partition("/")[2]]


def test_the_commit_is_that_of_the_whole_package_without_init(namespace, root, git):
    commit_all(git, namespace)
    assert len(provenance.code_of(IN_SPACE)["commit"]) == 12
    for name in ("first/someones_space/zoo/train.py", "second/someones_space/more.py"):
        provenance.code_of.cache_clear()
        before = (namespace / name).read_text()
        (namespace / name).write_text("changed = True\n")
        assert provenance.code_of(IN_SPACE)["commit"].endswith(" (modified)")
        (namespace / name).write_text(before)


def test_code_of_several_repositories_has_a_commit_of_each(root, git, tmp_path, monkeypatch):
    other = tmp_path / "other"
    (other / "someones_parts").mkdir(parents=True)
    (other / "someones_parts/__init__.py").write_text("")
    imported(other, monkeypatch, "someones_parts")
    commit_all(git, root)
    commit_all(git, other)
    (root / "someones_recipe/train.py").write_text("changed = True\n")
    found = provenance.code_of((*NAMES, "someones_parts:build"))["commit"]
    assert re.fullmatch(r"[0-9a-f]{12}, [0-9a-f]{12} \(modified\)", found)


def items(before, names=NAMES):
    provenance.code_of.cache_clear()
    provenance.include(names)
    return {each.part: each for each in provenance.compare(before)}


def test_the_same_code_is_exact(root):
    found = items({"code": code()})
    assert found.keys() == {"recipe code"}
    assert found["recipe code"].exact and found["recipe code"].note == "same files"


def test_each_file_that_differs_is_named(root):
    saved = code()
    del saved["files"]["someones_recipe/parts/net.py"]
    (root / "someones_recipe/train.py").write_text("changed = True\n")
    item = items({"code": saved})["recipe code"]
    assert (item.exact, item.restored) == (False, False)
    assert item.note == "changed: someones_recipe/train.py"


def test_other_files_are_not_exact(root):
    saved = code() | {"files": {"another/train.py": "0"}}
    item = items({"code": saved})["recipe code"]
    assert not item.exact and item.note.startswith("other files: someones_recipe/__init__.py")


def test_each_package_of_another_version_is_named(root):
    saved = code()
    now = saved["packages"]["numpy"]
    saved["packages"] = {"numpy": "1.0", "yaml": saved["packages"]["yaml"]}
    found = items({"code": saved})
    item = found["package numpy"]
    assert not item.exact
    assert item.note == f"was 1.0, is {now}"
    assert "package trainops" not in found  # which older records lack


def test_another_version_of_trainops_is_not_exact(root):
    saved = code()
    saved["packages"]["trainops"] = "0.0.1"
    item = items({"code": saved})["package trainops"]
    assert (item.exact, item.note) == (False, f"was 0.0.1, is {VERSION}")


@pytest.mark.parametrize("before", [{}, {"code": None}, {"code": "text"}, {"code": 1}])
def test_checkpoints_without_a_record_are_not_compared(root, before):
    assert items(before) == {}


@pytest.mark.parametrize("saved", [{}, {"files": 3, "packages": []}, {"files": {"a": None}}])
def test_a_record_that_cannot_be_read_is_not_exact(root, saved):
    assert not items({"code": saved})["recipe code"].exact


def attempt(tmp_path, number, candidates=(), identity=None, **options):
    supervisor = ScriptedSupervisor(at=3 if number == 1 else None)
    identity = {"attempt": number, **(identity or {})}
    store = CheckpointStore(tmp_path, identity=identity, candidates=candidates)

    def make_job():
        provenance.code_of.cache_clear()  # as in a process of its own
        provenance.include(NAMES)
        return CountingJob()

    policy = CheckpointPolicy(every_steps=100)
    outcome = run(make_job, seed=0, store=store, policy=policy, supervisor=supervisor, **options)
    return outcome, supervisor


def stopped(tmp_path):
    _, supervisor = attempt(tmp_path, 1)
    (checkpoint,) = supervisor.checkpoints
    return [Candidate(checkpoint.path, checkpoint.digest)]


def test_a_resume_with_changed_code_is_reported(root, tmp_path):
    candidates = stopped(tmp_path)
    (root / "someones_recipe/train.py").write_text("changed = True\n")
    outcome, supervisor = attempt(tmp_path, 2, candidates)
    assert isinstance(outcome, Succeeded)
    (receipt,) = supervisor.receipts
    assert not receipt.exact


def test_a_resume_that_must_be_exact_fails_before_its_first_step(root, tmp_path):
    candidates = stopped(tmp_path)
    outcome, _ = attempt(tmp_path, 2, candidates, requires_exact=True)
    assert isinstance(outcome, Succeeded)
    (root / "someones_recipe/train.py").write_text("changed = True\n")
    outcome, supervisor = attempt(tmp_path, 3, candidates, requires_exact=True)
    assert isinstance(outcome, Failed) and isinstance(outcome.error, NotExact)
    assert "recipe code: changed: someones_recipe/train.py" in str(outcome.error)
    assert not supervisor.checkpoints and not supervisor.progress


DATASET, MODEL = "ds_0123456789abcdef", "op_training_1"
READ = {"inputs": {DATASET: "ab" * 32, MODEL: "cd" * 32}}


def inputs_of(supervisor):
    parts = (f"dataset {DATASET}", f"model of {MODEL}")
    (receipt,) = supervisor.receipts
    return {each.part: (each.exact, each.note) for each in receipt.items if each.part in parts}


@pytest.mark.parametrize(
    ("now", "is_same", "note"),
    [
        ("ab" * 32, True, "same content, digest abababababab"),
        ("ef" * 32, False, "digest was abababababab, is efefefefefef"),
    ],
)
def test_the_receipt_names_each_dataset_and_whether_its_content_is_the_same(
    root, tmp_path, now, is_same, note
):
    _, supervisor = attempt(tmp_path, 1, identity=READ)
    (checkpoint,) = supervisor.checkpoints
    candidates = [Candidate(checkpoint.path, checkpoint.digest)]
    _, supervisor = attempt(
        tmp_path, 2, candidates, identity={"inputs": READ["inputs"] | {DATASET: now}}
    )
    assert inputs_of(supervisor) == {
        f"dataset {DATASET}": (is_same, note),
        f"model of {MODEL}": (True, "same content, digest cdcdcdcdcdcd"),
    }
    assert supervisor.receipts[0].exact == is_same


def test_a_resume_that_must_be_exact_fails_with_other_data(root, tmp_path):
    _, supervisor = attempt(tmp_path, 1, identity=READ)
    (checkpoint,) = supervisor.checkpoints
    candidates = [Candidate(checkpoint.path, checkpoint.digest)]
    other = {"inputs": READ["inputs"] | {DATASET: ""}}
    outcome, _ = attempt(tmp_path, 2, candidates, identity=other, requires_exact=True)
    assert isinstance(outcome.error, NotExact)
    assert f"dataset {DATASET}: digest was abababababab, is none" in str(outcome.error)


def test_without_a_record_of_inputs_none_are_compared(root, tmp_path):
    _, supervisor = attempt(tmp_path, 2, stopped(tmp_path), identity=READ)
    assert inputs_of(supervisor) == {}


def test_files_behind_links_are_compared(root, monkeypatch):
    """A package may be linked into the directory that it is imported from, or a module of it."""
    linked = root.parent / "linked"
    linked.mkdir()
    (linked / "someones_recipe").symlink_to(root / "someones_recipe")
    moved = root.parent / "net.py"
    (root / "someones_recipe/parts/net.py").rename(moved)
    (root / "someones_recipe/parts/net.py").symlink_to(moved)
    for name in [each for each in sys.modules if each.startswith("someones_")]:
        del sys.modules[name]
    imported(linked, monkeypatch, "someones_recipe.train")
    before = {"code": code()}
    assert before["code"]["files"].keys() >= {"someones_recipe/parts/net.py"}
    assert provenance.changed_on_disk(NAMES, before) == []
    moved.write_text("import json\n")
    assert provenance.changed_on_disk(NAMES, before) == ["someones_recipe/parts/net.py"]
    outside = {"code": {"files": {"../net.py": "0" * 32, str(moved): "0" * 32}}}
    assert provenance.changed_on_disk(NAMES, outside) == sorted(outside["code"]["files"])


def test_changed_files_are_found_without_an_import(root):
    before = {"code": code()}
    for name in [each for each in sys.modules if each.startswith("someones_")]:
        del sys.modules[name]
    assert provenance.changed_on_disk(NAMES, before) == []
    (root / "someones_recipe/train.py").write_text("import numpy\n")
    (root / "someones_recipe/parts/net.py").unlink()
    changed = ["someones_recipe/parts/net.py", "someones_recipe/train.py"]
    assert provenance.changed_on_disk(NAMES, before) == changed
    assert not [each for each in sys.modules if each.startswith("someones_")]
    assert provenance.changed_on_disk(("no_such_recipe:build",), before) == []
    assert provenance.changed_on_disk(NAMES, {}) == []
