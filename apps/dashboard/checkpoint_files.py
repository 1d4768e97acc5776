"""The files of a checkpoint on the operation page: models first, and how to load each format."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from apps.checkpoints.models import Checkpoint
from apps.checkpoints.sharing import artifacts
from apps.dashboard.formatting import number
from trainops.kind import KINDS
from trainops.runtime import lossless, monitors
from trainops.runtime.checkpoint.manifest import STATE, Artifact

BEST_MODEL, MODEL = f"{monitors.BEST_MODEL}.pt", "model.pt"
TITLES = {BEST_MODEL: "Best model", MODEL: "Last model"}
LOADED = 'torch.load("{}", map_location="cpu", weights_only=True)'
SNIPPETS = {  # by format: its title, and the code with the name of the downloaded file
    "weights": (
        "Weights of a model",
        f"import torch\n\nweights = {LOADED}\n"
        'model.load_state_dict(weights.get("model", weights))  # best models of loops: by name',
    ),
    "archive": (
        "Other .pt files",
        f"import torch\n\ncontent = {LOADED}  # tensors and plain values",
    ),
    "state": (
        STATE,
        "import json\nfrom pathlib import Path\n\n"
        'state = json.loads(Path("{}").read_text())  # NaN is {{"$float": "nan"}}',
    ),
}


@dataclass(frozen=True, slots=True)
class File:
    """A file of a checkpoint. title and note: of a model only."""

    artifact: Artifact
    title: str
    note: str


@dataclass(frozen=True, slots=True)
class Snippet:
    """Python code that loads a file of this format."""

    format: str
    title: str
    code: str


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint whose files are shown."""

    checkpoint: Checkpoint
    position: str
    files: Sequence[File]
    snippets: Sequence[Snippet]


def source(
    checkpoint: Checkpoint, position: str, kind: str, monitor: str, further: Iterable[str] = ()
) -> Source:
    """Return the files of a checkpoint of an operation that monitors these metrics."""
    state = lossless.decode(checkpoint.state)
    notes = {MODEL: position, BEST_MODEL: _note(monitor, KINDS[kind].best_ever(state))}
    by_metric = {f"{monitors.part_of(name)}.pt": name for name in further}
    for file, name in by_metric.items():
        notes[file] = _note(name, monitors.best_ever(state, name))
    titles = {**TITLES, **{file: f"Best model by {name}" for file, name in by_metric.items()}}
    listed = sorted(artifacts(checkpoint.manifest), key=lambda each: _rank(each, by_metric))
    files = [File(each, titles.get(each.name, ""), notes.get(each.name, "")) for each in listed]
    return Source(checkpoint, position, files, _snippets(checkpoint, listed, titles))


def download_name(checkpoint: Checkpoint, name: str) -> str:
    """Return the name under which a file of a checkpoint is downloaded."""
    return f"{checkpoint.operation_id}-step{checkpoint.step}-{name}"


def _rank(file: Artifact, by_metric: Iterable[str]) -> tuple[int, str]:
    first = (BEST_MODEL, *by_metric, MODEL, STATE)
    return (first.index(file.name) if file.name in first else len(first), file.name)


def _note(metric: str, value: float | None) -> str:
    return "" if value is None else f"{metric} {number(value)}"


def _snippets(
    checkpoint: Checkpoint, files: Sequence[Artifact], titles: Mapping[str, str]
) -> list[Snippet]:
    """Return how the first file of each format is loaded."""
    first: dict[str, str] = {}
    for file in files:
        first.setdefault(_format(file.name, titles), file.name)
    return [
        Snippet(name, title, code.format(download_name(checkpoint, first[name])))
        for name, (title, code) in SNIPPETS.items()
        if name in first
    ]


def _format(name: str, models: Mapping[str, str]) -> str:
    return "weights" if name in models else "state" if name == STATE else "archive"
