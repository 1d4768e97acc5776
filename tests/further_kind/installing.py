"""The example of a further kind, as a package that pip has installed beside trainops."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "examples" / "evaluation"
METADATA = "Metadata-Version: 2.1\nName: trainops-evaluation\nVersion: 0.1.0\n"
ENTRY_POINTS = "[trainops.kinds]\nevaluation = trainops_evaluation.kind:KIND\n"


def install(site: Path) -> list[str]:
    """Write the package's metadata into this directory; return what is put on Python's path."""
    metadata = site / "trainops_evaluation-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(METADATA)
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return [str(site), str(SOURCE)]
