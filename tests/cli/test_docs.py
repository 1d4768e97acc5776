"""What the documents say is what the code does, as far as a test can tell."""

import re
from collections.abc import Iterator

import pytest
from django.urls import URLPattern, URLResolver, get_resolver
from pydantic import BaseModel

from tests.cli.conftest import ROOT
from trainops import thresholds
from trainops.cli.app import build
from trainops.kinds.backtest.config import BacktestConfig
from trainops.kinds.federated.config import FederatedConfig
from trainops.kinds.loop.settings import ModuleParameters
from trainops.kinds.loop.trainer_settings import LightningParameters
from trainops.kinds.rl.config import RlConfig
from trainops.kinds.training.config import TrainingConfig
from trainops.launch.commands import HELP
from trainops.runtime.config import OperationConfig

README = (ROOT / "README.md").read_text()
DOCUMENTS = [
    *(
        ROOT / name
        for name in (
            "README.md",
            "ARCHITECTURE.md",
            "CHANGELOG.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
        )
    ),
    *(ROOT / "docs").rglob("*.md"),
]
SHARED_GROUPS = ("checkpoint", "restart", "limits", "resources")
THRESHOLDS = thresholds.with_kinds().model_fields
LAUNCHER = {
    "up", "test", "bench", "chaos", "install", "install-service", "doctor", "upgrade", "backup",
    "restore", "signing-keys", "erase", "sbom",
}  # fmt: skip


@pytest.mark.parametrize("name", THRESHOLDS)
def test_a_page_names_each_threshold_with_its_default(name):
    default = THRESHOLDS[name].default
    page = (ROOT / "docs/thresholds.md").read_text()
    assert f"| `TRAINOPS_{name.upper()}` | {default} |" in page


@pytest.mark.parametrize("name", THRESHOLDS)
def test_a_threshold_has_an_effect(name):
    declared = ROOT / "trainops/thresholds.py"
    sources = [*(ROOT / "trainops").rglob("*.py"), *(ROOT / "apps").rglob("*.py")]
    assert any(name in path.read_text() for path in sources if path != declared)


@pytest.mark.parametrize("name", ["wine.py", "wine_model.py", "spectra.py", "spectra_model.py"])
def test_the_page_of_recipes_shows_the_one_that_is_tested(name):
    recipe = (ROOT / "examples" / "recipes" / name).read_text()
    assert recipe in (ROOT / "docs/recipes.md").read_text()


def test_a_page_has_a_line_for_every_example_and_for_nothing_else():
    page = (ROOT / "docs/examples.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert len(named) == len(set(named))
    assert set(named) == set(_examples())


def _examples() -> Iterator[str]:
    """Yield the examples: of packages the folder, of a recipe the file of its parameters."""
    folder = ROOT / "examples"
    for path in folder.iterdir():
        is_file = path.is_file() and path.name != "__init__.py"
        if is_file or (path / "pyproject.toml").is_file():
            yield path.name
    for path in (folder / "recipes").glob("*.py"):
        if not re.search("_(_|model|loop|module|trainer)$", path.stem):
            yield f"recipes/{path.name}"


@pytest.mark.parametrize(
    "file",
    [
        "text.yaml", "recipes/fine_tuning.py", "image_folders.yaml", "large_table.yaml",
        "digits_gan.yaml",
    ],
)  # fmt: skip
def test_the_readme_has_a_line_for_each_of_these_examples(file):
    assert f"\n| `{file}` | " in README and (ROOT / "examples" / file).is_file()


def test_the_readme_is_short():
    assert len(README.split()) <= 800


@pytest.mark.parametrize("name", ["digits.py", "digits_loop.py"])
def test_the_page_of_loops_shows_the_recipe_that_is_tested(name):
    recipe = (ROOT / "trainops/kinds/loop/recipes" / name).read_text().rstrip()
    assert recipe in (ROOT / "docs/loops.md").read_text()


@pytest.mark.parametrize("name", ["digit_classifier.py", "digit_classifier_module.py"])
def test_the_page_of_modules_shows_the_recipe_that_is_tested(name):
    recipe = (ROOT / "trainops/kinds/loop/recipes" / name).read_text().rstrip()
    assert recipe in (ROOT / "docs/modules.md").read_text()


@pytest.mark.parametrize("name", ["lit_digits.py", "lit_digits_module.py"])
def test_the_page_of_lightning_shows_the_recipe_that_is_tested(name):
    recipe = (ROOT / "examples/recipes" / name).read_text().rstrip()
    assert recipe in (ROOT / "docs/lightning.md").read_text()


@pytest.mark.parametrize("name", ["waves.py", "waves_loop.py"])
def test_the_page_of_media_shows_the_recipe_that_is_tested(name):
    recipe = (ROOT / "examples/recipes" / name).read_text().rstrip()
    assert recipe in (ROOT / "docs/media.md").read_text()


@pytest.mark.parametrize("name", ["letters.py", "letters_trainer.py"])
def test_the_page_of_transformers_shows_the_recipe_that_is_tested(name):
    recipe = (ROOT / "examples/recipes" / name).read_text().rstrip()
    assert recipe in (ROOT / "docs/transformers.md").read_text()


@pytest.mark.parametrize(
    ("page", "parameters"), [("modules", ModuleParameters), ("lightning", LightningParameters)]
)
def test_the_page_of_a_form_has_each_setting_with_its_default(page, parameters):
    for name, field in parameters.model_fields.items():
        shown = "none" if field.default is None else str(field.default)
        shown = shown.lower() if isinstance(field.default, bool) else shown
        assert f"| `{name}` | {shown} |" in (ROOT / f"docs/{page}.md").read_text(), name


def fields(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, object]]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from fields(inner, f"{path}{name}.")
        else:
            yield f"{path}{name}", field.default


@pytest.mark.parametrize(("name", "default"), list(fields(TrainingConfig)))
def test_each_field_of_a_config_is_documented_with_its_default(name, default):
    row = re.search(rf"^\| `{re.escape(name)}` \| (.*?) \|", CONFIGURATION, re.MULTILINE)
    assert row, name
    if isinstance(default, int | float):
        assert row[1] == (str(default).lower() if isinstance(default, bool) else f"{default:g}")
    elif default is None or isinstance(default, str):
        assert row[1] == (default or "none")


@pytest.mark.parametrize(("name", "default"), list(fields(BacktestConfig)))
def test_each_field_of_a_backtest_is_documented_with_its_default(name, default):
    text = (ROOT / "docs" / "backtest.md").read_text()
    is_shared = name in TrainingConfig.model_fields or name.partition(".")[0] in SHARED_GROUPS
    if is_shared and name not in ("mode", "monitor", "checkpoint.every_bars"):
        return  # in the page on every operation's config
    if name.startswith("columns."):
        assert f"`.{name.partition('.')[2]}`" in text or f"`{name}`" in text
        return
    row = re.search(rf"^\| `{re.escape(name)}`.*? \| (.*?) \|", text, re.MULTILINE)
    assert row, name
    if isinstance(default, bool):
        assert row[1] == str(default).lower()
    elif isinstance(default, int | float):
        assert row[1] == f"{default:g}"
    elif default is None or isinstance(default, str):
        assert row[1] == (default or "none")


@pytest.mark.parametrize(("name", "default"), list(fields(RlConfig)))
def test_each_field_of_reinforcement_learning_is_documented_with_its_default(name, default):
    is_shared = name in OperationConfig.model_fields or name.partition(".")[0] in SHARED_GROUPS
    if name in ("recipe", "parameters") or (is_shared and name != "checkpoint.every_episodes"):
        return  # in the page on every operation's config
    text = (ROOT / "docs" / "rl.md").read_text()
    row = re.search(rf"^\| `{re.escape(name)}` \| (.*?) \|", text, re.MULTILINE)
    assert row, name
    if isinstance(default, bool):
        assert row[1] == str(default).lower()
    elif isinstance(default, int | float):
        assert float(row[1]) == default
    elif default is None or isinstance(default, str):
        assert row[1] == (default or "none")
    else:
        assert row[1] == (", ".join(map(str, default)) or "none")


@pytest.mark.parametrize(("name", "default"), list(fields(FederatedConfig)))
def test_each_field_of_a_federated_operation_is_documented_with_its_default(name, default):
    text = (ROOT / "docs" / "federated.md").read_text()
    is_shared = name in TrainingConfig.model_fields or name.partition(".")[0] in SHARED_GROUPS
    if is_shared and name != "checkpoint.every_client_epochs":
        assert not name.endswith("monitor") or f"| `{name}` | {default} |" in text
        return
    row = re.search(rf"^\| `{re.escape(name)}` \| (.*?) \|", text, re.MULTILINE)
    assert row, name
    if isinstance(default, bool):
        assert row[1] == str(default).lower()
    elif isinstance(default, int | float):
        assert row[1] == f"{default:g}"
    else:
        assert row[1] == (default or "none")


CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()


def addresses(patterns: list[URLPattern | URLResolver], before: str = "") -> Iterator[str]:
    for each in patterns:
        address = before + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from addresses(each.url_patterns, address)
        elif address.startswith("api/v1/"):
            yield "/" + re.sub(r"<\w+:(\w+)>", r"{\1}", address)


def test_the_page_on_the_api_names_every_address_and_no_other():
    text = (ROOT / "docs" / "api.md").read_text()
    documented = set(re.findall(r"(?:GET|POST|PUT|DELETE)`?,? ?`?(/api/v1/[^` ]*)`", text))
    documented |= set(re.findall(r"`(?:GET|POST|PUT|DELETE) (/api/v1/[^` ]*)`", text))
    assert documented == set(addresses(get_resolver().url_patterns))


def commands() -> set[str]:
    app = build()
    return {each.name for each in app.registered_commands if each.name} | {
        group.name for group in app.registered_groups if group.name
    }


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents_show_only_commands_that_exist(path):
    shown = set(re.findall(r"python3 -m trainops ([a-z-]+)", path.read_text()))
    assert shown <= commands() | LAUNCHER


def test_the_readme_and_the_help_of_the_entry_point_name_every_command():
    for name in commands():
        assert re.search(rf"`{name}\b|, `{name}\b", README), name
        assert re.search(rf"^  (.*, )?{name}\b", HELP, re.MULTILINE), name


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(path):
    for target in re.findall(r"(?<!!)\[[^\]]*\]\(([^)#]+)", path.read_text()):
        assert target.startswith("http") or (path.parent / target).exists(), target
