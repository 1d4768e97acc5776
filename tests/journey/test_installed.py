"""trainops and a package of recipes, installed by pip and started from an empty directory."""

import pytest

from tests.journey.stack import running
from tests.wheels import ROOT, environment_with, plain_environment, run, wheel_of, wheel_of_clone

pytestmark = [pytest.mark.journey, pytest.mark.slow]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("installed")
    ours = wheel_of_clone(directory)
    theirs = wheel_of(ROOT / "examples" / "recipe_package", directory)
    return environment_with(directory / "venv", ours, theirs)


def test_digits_and_a_recipe_of_ones_own_are_trained_and_it_stops(installed, tmp_path):
    program, data = installed / "trainops", tmp_path / "data"
    data.mkdir()
    environment = plain_environment(XDG_DATA_HOME=str(data))
    own = {"TRAINOPS_RECIPES": "", "TRAINOPS_DATA_DIR": "", "PYTHONPATH": ""}
    up = running(data / "trainops", program=[str(program)], cwd=tmp_path, **own)
    with up as stack:
        assert {"digits", "iris"} <= {each["name"] for each in stack.get("recipes")}
        page = stack.client.get(f"{stack.url}/login/")
        assert page.status_code == 200 and "css/trainops.css" in page.text
        assert stack.client.get(f"{stack.url}/static/css/trainops.css").status_code == 200
        wanted = ["run", str(ROOT / "examples" / "digits.yaml"), "--set", "epochs=2", "--follow"]
        run(program, *wanted, cwd=tmp_path, env=environment)  # finds address and token by itself
        iris = stack.wait(stack.submit(recipe="iris", epochs=30, learning_rate=0.01), "COMPLETED")
        assert iris["result"]["final"]["val_accuracy"] > 0.8
        assert [each["state"] for each in stack.get("operations")] == ["COMPLETED", "COMPLETED"]
    assert not (tmp_path / "var").exists()
