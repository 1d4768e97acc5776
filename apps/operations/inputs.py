"""What an operation reads: uploaded tables, and models that other operations trained."""

from collections.abc import Iterable, Mapping, Sequence

from apps.checkpoints import signatures, storage
from apps.checkpoints.models import Checkpoint
from apps.datasets import services as datasets
from apps.datasets.directories import reading
from apps.operations.lifecycle import State
from apps.operations.models import ModelUse, Operation
from trainops.kind import KINDS
from trainops.runtime.checkpoint.manifest import read_manifest
from trainops.runtime.config import NamedModel, OperationConfig
from trainops.runtime.errors import ConfigError


def check(dataset_ids: Sequence[str], config: OperationConfig) -> None:
    """Refuse what names datasets or models that are not there, or that do not fit.

    Raises ConfigError.
    """
    if absent := datasets.missing(dataset_ids):
        fields = config.datasets()
        raise ConfigError(
            {fields[each]: f"dataset {each} does not exist; upload it first" for each in absent}
        )
    problems = _of_wrong_kind(dataset_ids, config)
    if problems := problems or dict(config.check_columns(datasets.columns_of(dataset_ids))):
        raise ConfigError(problems)
    for operation_id, named in config.models().items():
        _check_model(operation_id, named)


def use_models(operation: Operation, config: OperationConfig) -> None:
    """Write down whose models it needs: they cannot be deleted before it has ended.

    Call in the transaction that makes its row. Raises ConfigError.
    """
    # Deleting locks the same rows: it was before, and is seen here, or it finds these uses.
    sources = Operation.objects.filter(pk__in=config.models()).select_for_update()
    sources_by_id = {each.pk: each for each in sources}
    for operation_id, named in config.models().items():
        _check_model(operation_id, named)
        ModelUse.objects.create(operation=operation, source=sources_by_id[operation_id])


def models_of(operation: Operation) -> dict[str, Checkpoint]:
    """Return the final checkpoint of each operation whose model it uses."""
    sources = ModelUse.objects.filter(operation=operation).values_list("source_id", flat=True)
    return finals(sources)


def finals(operation_ids: Iterable[str]) -> dict[str, Checkpoint]:
    """Return the final checkpoint of each operation that still has it."""
    found = {each: _final(each) for each in operation_ids}
    return {each: checkpoint for each, checkpoint in found.items() if checkpoint is not None}


def paths(kind: str, config: OperationConfig, models: Mapping[str, Checkpoint]) -> dict[str, str]:
    """Return where each input lies on this machine: what makes a job is given these."""
    found = {each: reading.input_path(each) for each in KINDS[kind].dataset_ids(config)}
    found |= {name: storage.directory(each.artifacts_path) for name, each in models.items()}
    return {name: str(path) for name, path in found.items()}


def digests(dataset_ids: Iterable[str], models: Mapping[str, Checkpoint]) -> dict[str, str]:
    """Return the BLAKE3 of the content of each input: a dataset's, a model's manifest."""
    found = datasets.digests(dataset_ids)
    return found | {name: each.manifest_digest for name, each in models.items()}


def require_committed(model: Checkpoint) -> None:
    """Raise CheckpointCorrupted unless what lies here was committed, and its signature is accepted.

    The manifest stands for all of it: what reads the files compares them with that.
    """
    signatures.require(model)
    read_manifest(storage.directory(model.artifacts_path), model.manifest_digest)


def _of_wrong_kind(dataset_ids: Sequence[str], config: OperationConfig) -> dict[str, str]:
    """Return the fields that name a directory instead of a table, or the other way round."""
    fields, wanted = config.datasets(), config.directory_ids()
    found = reading.directories(dataset_ids)
    problems = {}
    for each in dataset_ids:
        if each in found and each not in wanted:
            problems[fields[each]] = f"got the directory {each}; allowed: uploaded datasets"
        elif each in wanted and each not in found:
            allowed = "registered directories (datasets add)"
            problems[fields[each]] = f"got the upload {each}; allowed: {allowed}"
    return problems


def _final(operation_id: str) -> Checkpoint | None:
    mine = Checkpoint.objects.filter(operation_id=operation_id, type=Checkpoint.Type.FINAL)
    return mine.healthy().newest_first().first()


def _check_model(operation_id: str, named: NamedModel) -> None:
    source, recipe = Operation.objects.filter(pk=operation_id).first(), named.mark.recipe
    problem = ""
    if source is None:
        problem = f"operation {operation_id} does not exist"
    elif recipe and source.recipe != recipe:
        problem = (
            f"{operation_id} was trained with the recipe {source.recipe!r}; allowed: {recipe!r}"
        )
    elif source.state != State.COMPLETED:
        problem = f"{operation_id} is {source.state}; it must be COMPLETED"
    elif _final(operation_id) is None:
        problem = f"the model of {operation_id} was deleted"
    if problem:
        raise ConfigError({named.field: problem})
