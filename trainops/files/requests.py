"""Requests to the confined process that exchanges files, and its answers: JSON on pipes."""

from typing import Literal, NotRequired, TypeAlias, TypedDict

from trainops.files.checks import CheckJson
from trainops.plain import Config
from trainops.runtime.checkpoint.staged_json import StagedJson
from trainops.runtime.ledger import EntryJson
from trainops.runtime.receipt import ReceiptJson


class ExchangeRequest(TypedDict):
    """The fields of every request: paths are absolute, digests are BLAKE3."""

    direction: Literal["import", "export", "fork", "warm_start", "tabulate", "check"]
    kind: str
    config: Config


class OperationIdentity(TypedDict):
    """The operation whose first checkpoint is written."""

    operation_id: str
    attempt: int
    kind: str
    config: Config
    inputs: dict[str, str]  # digest of each input


class Secret(TypedDict, total=False):
    """The key of the operation's ledger, if it has one."""

    secret: str  # hexadecimal


class Target(TypedDict):
    """The operation whose first checkpoint is written, and what its job reads."""

    directory: str
    identity: OperationIdentity
    inputs: dict[str, str]  # path of each input


class ImportRequest(ExchangeRequest, Target, Secret):
    """Write a file as a checkpoint below `directory`."""

    file: str


class ExportSource(ExchangeRequest):
    """What an exported file depends on."""

    checkpoint: str
    digest: str
    name: str
    which: str
    agent: NotRequired[int | None]
    entries: list[EntryJson]


class ExportRequest(ExportSource):
    """Write a checkpoint as a file of another tool."""

    file: str


class ForkRequest(ExchangeRequest, Target, Secret):
    """Write a checkpoint of one operation as the first one of another."""

    checkpoint: str
    digest: str
    config_before: Config


class WarmStartRequest(ExchangeRequest, Target, Secret):
    """Write the weights of a checkpoint, in a new state, as the first one of another operation."""

    checkpoint: str
    digest: str


class CheckRequest(ExchangeRequest, Secret):
    """Load a checkpoint into a fresh job."""

    checkpoint: str
    inputs: dict[str, str]


class TabulateRequest(ExchangeRequest):
    """Write a table of a checkpoint as CSV."""

    checkpoint: str
    digest: str
    inputs: dict[str, str]
    table: str
    file: str


AnyRequest: TypeAlias = (
    ImportRequest | ExportRequest | ForkRequest | WarmStartRequest | CheckRequest | TabulateRequest
)


class ExchangeRefusal(TypedDict):
    """Why a request was refused."""

    code: str
    message: str
    details: dict[str, object]


class ExchangeAnswer(TypedDict, total=False):
    """A refusal, or the fields of what was made."""

    refused: ExchangeRefusal
    staged: StagedJson
    receipt: ReceiptJson
    entries: list[EntryJson]
    size_bytes: int
    name: str
    checks: list[CheckJson]
