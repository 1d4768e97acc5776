"""The environment that a checkpoint's manifest records: device, versions, and the recipe's code."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from apps.checkpoints import integrity, place
from apps.checkpoints.models import Checkpoint
from trainops.runtime import lossless
from trainops.runtime.errors import CheckpointCorrupted


def of(checkpoints: Iterable[Checkpoint]) -> dict[str, Mapping[str, object] | str]:
    """Return the environment of each checkpoint by its id, or a sentence why it is not known.

    The identity of the storage is checked once; manifests that were read before are remembered.
    """
    found: dict[str, Mapping[str, object] | str] = {}
    wanted = list(checkpoints)
    try:
        if wanted:
            place.require()
    except OSError:
        return {each.pk: "The checkpoint storage is not available." for each in wanted}
    for each in wanted:
        try:
            found[each.pk] = _environment(each.artifacts_path, each.manifest_digest)
        except CheckpointCorrupted:
            found[each.pk] = f"The manifest of checkpoint {each.pk} is missing or altered."
        except OSError:
            found[each.pk] = "The checkpoint storage did not respond."
    return found


@lru_cache(maxsize=1000)
def _environment(artifacts_path: str, digest: str) -> Mapping[str, object]:
    """Read it once in a process: the content of a digest never changes."""
    manifest = lossless.loads(integrity.committed_manifest(artifacts_path, digest))
    environment = manifest.get("environment")
    return environment if isinstance(environment, Mapping) else {}
