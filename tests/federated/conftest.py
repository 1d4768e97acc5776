import pytest

from trainops.runtime import reproducibility


@pytest.fixture(autouse=True, scope="session")
def _engine_settings():
    reproducibility.set_determinism(deterministic=True, threads=1)
