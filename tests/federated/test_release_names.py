"""A private run from before draws the same noise: settings and code name its releases as they did.

What names contain must stay as version 0.1.0 had it, whatever is moved or renamed.
"""

import pytest

from trainops.kind import KINDS
from trainops.kinds.federated import release_names
from trainops.kinds.federated.options import MEASURES, PLAIN
from trainops.kinds.federated.release_names import CODE, FILES, settings_and_code
from trainops.kinds.federated.rng import Secrets
from trainops.recipes import recipes

FEDERATED = KINDS["federated"]
PACKAGE = "trainops.kinds.federated."
DATASET = {"dataset": "ds_0123456789abcdef"}
NOISE = {"noise_multiplier": 1.0, "user_noise_multiplier": 2.0}
# The name of settings and code alone, as version 0.1.0 gave it.
RECORDED = [
    ("federated_digits", {}, {"mode": "hybrid"}, "2f99cb59981900989b49283e52340402"),
    (
        "federated_digits",
        {},
        {"mode": "sample", "accountant": "prv"},
        "d61a8d788260be583ee85822f7093cc9",
    ),
    ("federated_images", DATASET, {"mode": "user"}, "ce624235c43883e101b6f86bc5f26cec"),
    ("federated_segmentation", {}, {"mode": "hybrid"}, "ed1762deb78231f7a81f315e89f14d32"),
    (
        "federated_tabular",
        DATASET | {"target": "price"},
        {"mode": "hybrid"},
        "96cffb8aa0d4b15e90e0b94913501954",
    ),
]
EDITED = """{path} was edited: its digest is {digest} now.
- If no release can differ by it (a move, another name, a comment, a docstring, an annotation), \
enter that as the first digest of "{name}" in FILES of trainops/kinds/federated/release_names.py. \
Private runs from before continue with the same noise.
- Otherwise, enter it as both digests, renew RECORDED in this test, and say in CHANGELOG.md that \
private runs from before release under new names."""
SETTINGS = """The settings or the code in the names of releases are not those of version 0.1.0. \
A new field of the config or of the recipe's parameters that changes no release belongs into \
IRRELEVANT of trainops/kinds/federated/release_names.py; any other must be left out of names where \
it has the default that means what was done before."""


def files_in_names():
    """Return what is built in that names may contain, by its name in FILES."""
    builds = [each.build for each in recipes("federated").values()]
    built_in = [build for build in builds if build.startswith(PACKAGE)]
    paths = [*(f"{PACKAGE}{name}" for name in CODE), *MEASURES.values(), PLAIN, *built_in]
    return {path.partition(":")[0].removeprefix(PACKAGE): path for path in paths}


def config_of(recipe, parameters, privacy):
    given = {"recipe": recipe, "parameters": parameters, "privacy": {**NOISE, **privacy}}
    return FEDERATED.parse_config(given)


def name_of(config):
    return Secrets(b"a secret", 7).identity(settings_and_code(config), [])


def test_every_file_that_is_part_of_names_has_its_digests():
    assert FILES.keys() == files_in_names().keys()


@pytest.mark.parametrize("name", FILES)
def test_an_edited_file_needs_a_decision(name):
    digest = release_names.digest_of(files_in_names()[name])
    path = f"trainops/kinds/federated/{name.replace('.', '/')}.py"
    assert FILES[name][0] == digest, EDITED.format(path=path, digest=digest, name=name)


@pytest.mark.parametrize(("recipe", "parameters", "privacy", "recorded"), RECORDED)
def test_settings_and_code_name_releases_as_in_0_1_0(recipe, parameters, privacy, recorded):
    assert name_of(config_of(recipe, parameters, privacy)) == recorded, SETTINGS


def test_what_changes_no_release_is_not_in_its_name():
    digits = {"recipe": "federated_digits", "privacy": {"mode": "hybrid", **NOISE}}
    expected = name_of(FEDERATED.parse_config(digits))
    longer = {**digits, "rounds": 99, "exact": "required", "placement": "distributed"}
    assert name_of(FEDERATED.parse_config(longer)) == expected
    other = {**digits, "batch_size": 31}
    assert name_of(FEDERATED.parse_config(other)) != expected
