"""The example of a further kind, as a package that pip has installed beside trainops."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "examples" / "evaluation"
METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n"
ENTRY_POINTS = "[trainops.kinds]\nevaluation = trainops_evaluation.kind:KIND\n"
WALKS = "[trainops.kinds]\nwalks = tests.further_kind.walks.kind:KIND\n"


def install(site: Path) -> list[str]:
    """Write the package's metadata into this directory; return what is put on Python's path."""
    _write_metadata(site, "trainops-evaluation", ENTRY_POINTS)
    return [str(site), str(SOURCE)]


def install_walks(site: Path) -> str:
    """Write the metadata of the kind with subtasks; return what is put on Python's path."""
    _write_metadata(site, "trainops-walks", WALKS)
    return str(site)


def _write_metadata(site: Path, name: str, entry_points: str) -> None:
    metadata = site / f"{name.replace('-', '_')}-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(METADATA.format(name=name))
    (metadata / "entry_points.txt").write_text(entry_points)
