"""What is recorded of operations besides their metrics: config, code, data and environment."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from django.db.models import OuterRef, Subquery

from apps.checkpoints import environments
from apps.checkpoints.models import Checkpoint, CheckpointQuerySet
from apps.datasets import services as datasets
from apps.operations.comparisons.differences import flatten
from apps.operations.models import DatasetUse, ModelUse, Operation
from apps.operations.requests.initial_checkpoints import ATTEMPT
from trainops.runtime.provenance import CODE

Part: TypeAlias = Literal["config", "code", "data", "environment"]
PARTS: Final[tuple[Part, ...]] = ("config", "code", "data", "environment")
Leaves: TypeAlias = dict[str, object]  # values by path
NO_CHECKPOINT = "It has no checkpoint, which would record its code and environment."

NOT_RECORDED = "Its latest checkpoint has no record of its code and environment."


@dataclass(frozen=True, slots=True)
class Recorded:
    """The records of one operation. code, environment: None where they are not known."""

    config: Leaves
    data: Leaves
    code: Leaves | None
    environment: Leaves | None
    problem: str  # why the last two are not known

    def part(self, name: Part) -> Leaves | None:
        return {
            "config": self.config,
            "code": self.code,
            "data": self.data,
            "environment": self.environment,
        }[name]


def of(operations: Sequence[Operation]) -> dict[str, Recorded]:
    """Return the records of each operation by its id; the number of queries is fixed."""
    ids = [each.pk for each in operations]
    inputs = _inputs(ids)
    digests = _digests({each for mine in inputs.values() for each in mine})
    found = _environments(ids)
    return {
        each.pk: _recorded(each, inputs[each.pk], digests, found.get(each.pk, NO_CHECKPOINT))
        for each in operations
    }


def _recorded(
    operation: Operation,
    inputs: Collection[str],
    digests: Mapping[str, str],
    environment: Mapping[str, object] | str,
) -> Recorded:
    leaves = flatten(operation.config)
    config = {path: value for path, value in leaves.items() if not _named(value, inputs)}
    data: Leaves = {}
    for path, value in leaves.items():
        if named := _named(value, inputs):
            data[path] = value
            known = [digests.get(each) for each in named]
            data[f"{path} digest"] = known[0] if isinstance(value, str) else known
    if isinstance(environment, str):
        return Recorded(config, data, None, None, environment)
    circumstances = {name: each for name, each in environment.items() if name != CODE}
    code = _code(environment.get(CODE))
    problem = "" if code or circumstances else NOT_RECORDED
    return Recorded(config, data, code or None, flatten(circumstances) or None, problem)


def _code(code: object) -> Leaves:
    """Return the commit, the files' digests and the packages' versions of a recipe."""
    if not isinstance(code, Mapping):
        return {}
    leaves: Leaves = {"commit": code["commit"]} if "commit" in code else {}
    for key, noun in (("files", "file"), ("packages", "package")):
        found = code.get(key)
        if isinstance(found, Mapping):
            leaves |= {f"{noun} {name}": value for name, value in found.items()}
    return leaves


def _named(value: object, inputs: Collection[str]) -> list[str]:
    """Return the datasets and models that a value of a config names."""
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, str) and each in inputs]


def _inputs(ids: Sequence[str]) -> dict[str, set[str]]:
    """Return the ids of the datasets and of the models that each operation reads."""
    found: dict[str, set[str]] = defaultdict(set)
    tables = DatasetUse.objects.filter(operation_id__in=ids)
    models = ModelUse.objects.filter(operation_id__in=ids)
    for rows in (
        tables.values_list("operation_id", "dataset_id"),
        models.values_list("operation_id", "source_id"),
    ):
        for operation_id, name in rows:
            found[operation_id].add(name)
    return found


def _digests(names: Collection[str]) -> dict[str, str]:
    """Return the digest of each dataset, and of each model's manifest, that still exists."""
    models = _newest(names, Checkpoint.objects.filter(type=Checkpoint.Type.FINAL).healthy())
    return datasets.digests(names) | {each.operation_id: each.manifest_digest for each in models}


def _environments(ids: Sequence[str]) -> dict[str, Mapping[str, object] | str]:
    """Return what the newest checkpoint that each operation itself wrote says, by operation."""
    newest = list(_newest(ids, Checkpoint.objects.filter(attempt__gt=ATTEMPT).usable()))
    found = environments.of(newest)
    return {each.operation_id: found[each.pk] for each in newest}


def _newest(operation_ids: Collection[str], rows: CheckpointQuerySet) -> CheckpointQuerySet:
    """Return the newest checkpoint of each operation, without its state and its list of files."""
    mine = rows.filter(operation_id=OuterRef("operation_id")).newest_first()
    newest = Checkpoint.objects.filter(
        operation_id__in=operation_ids, pk=Subquery(mine.values("pk")[:1])
    )
    return newest.only("operation_id", "artifacts_path", "manifest_digest")
