"""Files of an operation, compared with their digests when they have arrived."""

from collections.abc import Sequence
from pathlib import Path

from blake3 import blake3

from trainops.client.api import Api
from trainops.client.problems import ExitCode, Problem
from trainops.client.responses import OperationArtifact


def download(
    api: Api,
    operation_id: str,
    directory: Path,
    *,
    checkpoint: str = "",
    names: Sequence[str] = (),
) -> list[Path]:
    """Write the files of a checkpoint into a directory; return their paths.

    checkpoint: its id, `latest` or `best`; by default the final checkpoint, else the latest.
    names: only these files; by default all.

    Raises Problem (there is no such file, or other bytes arrived) and OSError.
    """
    found: list[OperationArtifact] = api.get(
        f"operations/{operation_id}/artifacts", checkpoint_id=checkpoint or None
    )
    known = [str(each["name"]) for each in found]
    if missing := [name for name in names if name not in known]:
        raise Problem(
            f"No file {missing[0]!r}; allowed: {', '.join(known) or 'none'}", ExitCode.NOT_FOUND
        )
    directory.mkdir(parents=True, exist_ok=True)
    chosen = [each for each in found if not names or each["name"] in names]
    return [_downloaded(api, operation_id, directory, each) for each in chosen]


def _downloaded(api: Api, operation_id: str, directory: Path, artifact: OperationArtifact) -> Path:
    name = str(artifact["name"])
    if Path(name).name != name:
        raise Problem(f"The server names a file {name!r}; allowed: a name without directories.")
    target, address = directory / name, f"operations/{operation_id}/artifacts/{name}"
    api.download(address, target, checkpoint_id=artifact["checkpoint_id"])
    digest = blake3(max_threads=blake3.AUTO).update_mmap(target).hexdigest()
    if digest != str(artifact["blake3"]).rpartition(":")[2]:
        target.unlink()
        raise Problem(f"{name} arrived with other bytes than were saved; try again.")
    return target
