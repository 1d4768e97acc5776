import pytest

from trainops.engines import reproducibility


@pytest.fixture(autouse=True, scope="session")
def _engine_settings():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINOPS_RECIPES", "tests.engines.toy:RECIPE")
        reproducibility.set_determinism(deterministic=True, threads=1)
        yield
