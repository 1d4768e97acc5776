"""Responses of the HTTP API: the fields that commands read.

Fields of older servers may be missing; commands read those with `get`.
"""

from typing import NotRequired, TypeAlias, TypedDict

from trainops.plain import Json, JsonObject

TableRow: TypeAlias = JsonObject  # the columns of one operation; see `Client.table_rows`


class JsonSchema(TypedDict, total=False):
    """The keywords of JSON Schema that describe parameters of recipes."""

    type: str
    format: str
    description: str
    default: Json
    enum: list[Json]
    anyOf: "list[JsonSchema]"
    items: "JsonSchema"
    minimum: float
    exclusiveMinimum: float
    maximum: float
    exclusiveMaximum: float
    required: list[str]
    properties: "dict[str, JsonSchema]"


class Message(TypedDict):
    """The response to an action that returns no row."""

    message: str


class BulkOutcome(TypedDict):
    """What an action did to one operation, or why it was refused."""

    operation_id: str
    name: str
    outcome: str
    code: str
    message: str


class BulkOutcomes(TypedDict):
    """The response to one action on several operations."""

    num_matching: int
    num_refused: int
    outcomes: list[BulkOutcome]


class Token(TypedDict):
    """An API token, without its secret."""

    token_id: str
    name: str
    scope: str
    created_at: str
    expires_at: str | None
    last_used_at: str | None
    last_used_from: str
    is_current: bool


class NewToken(TypedDict):
    """A created API token."""

    token: str


class TokenRequest(TypedDict):
    """Request body for a token."""

    name: str
    scope: NotRequired[str]  # user (the default), read or worker
    expires_at: NotRequired[str]  # ISO 8601


class User(TypedDict):
    """An account."""

    username: str
    email: str
    role: str | None
    is_superuser: bool
    is_active: bool
    created_at: str
    signed_in_at: str | None
    is_service: bool
    has_second_factor: bool


class AuditRow(TypedDict):
    """An entry of the audit log."""

    id: int
    created_at: str
    event: str
    actor: str
    address: str
    details: dict[str, str]


class KindStatistics(TypedDict):
    """What operations of one kind amount to."""

    kind: str
    states: dict[str, int]
    num_checkpoints: int
    checkpoint_bytes: int
    compute_hours: float
    gpu_hours: float


class WorkerStatistics(TypedDict):
    """Slots of the workers that are present, and the number of workers by status."""

    num_slots: int
    num_running: int
    statuses: dict[str, int]


class DatasetStatistics(TypedDict):
    """Number and size of all datasets."""

    num_datasets: int
    size_bytes: int


class Statistics(TypedDict):
    """Numbers about the whole installation; hours are of the last `days` days."""

    days: int
    kinds: list[KindStatistics]
    workers: WorkerStatistics
    datasets: DatasetStatistics


class Usage(TypedDict):
    """What the operations of one project, owner or kind computed in one week."""

    week: str  # its Monday, ISO 8601
    name: str
    num_attempts: int
    compute_hours: float
    gpu_hours: float


class WeeklyUsage(TypedDict):
    """The usage report: the newest week first."""

    by: str
    rows: list[Usage]


class NewPassword(TypedDict):
    """A password that was set; shown once."""

    username: str
    password: str


class ShareUse(TypedDict):
    """What is used of a share now; GPU hours of this week."""

    slots: int
    gpus: int
    gpu_hours: float
    budget_gpu_hours: float
    budget_compute_hours: float


class Share(TypedDict):
    """Limits and weight of a user or a project; None: no limit."""

    share_id: int
    owner: str | None
    project: str
    members_only: bool
    members: list[str]
    preemptible: bool
    weight: float
    max_slots: int | None
    max_gpus: int | None
    gpu_hours_per_week: float | None
    budget_gpu_hours: float | None
    budget_compute_hours: float | None
    budget_period: str
    budget_renewed_at: str | None
    max_checkpoint_bytes: int | None
    used: ShareUse


class NewUser(User):
    """A created account; a service account has no password."""

    password: str | None


class Rule(TypedDict):
    """A notification rule."""

    rule_id: int
    user: str | None
    name: str
    channel: str
    target: str
    condition: str
    secret: str


class Delivery(TypedDict):
    """One notification, with the result of its last try."""

    delivery_id: int
    rule_id: int
    operation_id: str
    what: str
    status: str
    num_tries: int
    response_status: int | None
    error: str
    created_at: str


class ErrorDetails(TypedDict, total=False):
    """Details of a failure."""

    fields: dict[str, str]  # path of a field → problem
    possible_reasons: list[str]


class Error(TypedDict):
    """The `error` of a failure's envelope."""

    code: str
    message: str
    details: NotRequired[ErrorDetails | None]


class BlockingReason(TypedDict):
    """Why a queued operation does not start."""

    code: str | None
    message: str


class OperationError(TypedDict, total=False):
    """Why an operation failed."""

    code: str
    message: str


class AttentionReason(TypedDict):
    """Why an operation needs attention, and what to do."""

    code: str
    message: str
    next_step: str


class Operation(TypedDict):
    """A row of the list of operations, or one operation."""

    id: str
    operation_id: str
    name: str
    kind: str
    recipe: NotRequired[str | None]
    status: str
    state: str
    created_at: str
    unit: NotRequired[str | None]
    step: NotRequired[int]
    percent: NotRequired[float | None]
    place: NotRequired[str | None]
    metrics: NotRequired[dict[str, Json] | None]
    monitor: NotRequired[str | None]
    steps_per_second: NotRequired[float | None]
    eta_seconds: NotRequired[float | None]
    queued_at: NotRequired[str | None]
    started_at: NotRequired[str | None]
    finished_at: NotRequired[str | None]
    not_before: NotRequired[str | None]
    waiting_for: NotRequired[BlockingReason | None]
    attention: NotRequired[list[AttentionReason]]
    reason: NotRequired[str | None]
    error: NotRequired[OperationError | None]
    stop_requested: NotRequired[str | None]
    stop_requested_by: NotRequired[str | None]
    owner: NotRequired[str | None]
    tags: NotRequired[list[str] | None]
    priority: NotRequired[int]
    revision: int
    queue: NotRequired[str | None]
    project: NotRequired[str | None]
    attempt: NotRequired[int | None]
    worker_id: NotRequired[str | None]
    config: NotRequired[JsonObject]
    config_given: NotRequired[JsonObject]
    config_hash: NotRequired[str | None]
    allowed_actions: NotRequired[list[str] | None]


class Event(TypedDict):
    """One event of an operation."""

    at: str
    what: str
    actor: str | None
    attempt: int | None
    note: str


class Attempt(TypedDict):
    """One attempt of an operation."""

    number: int
    from_step: int | None


class ReceiptLine(TypedDict):
    """One thing that a resume restored."""

    part: str
    restored: bool
    exact: bool
    note: str


class Receipt(TypedDict):
    """What an attempt restored, and from which checkpoint; None for a first attempt."""

    step: int
    checkpoint: str | None
    exact: bool
    items: list[ReceiptLine]


class ReceiptOfAttempt(TypedDict):
    """What the command `receipt` reads of an attempt."""

    number: int
    receipt: Receipt | None


class Curve(TypedDict):
    """The points of one metric in one attempt, as columns of equal length."""

    name: str
    retired_by: int | None
    steps: list[int]
    values: list[float | str]  # text where not finite
    at: list[str]


class Curves(TypedDict):
    """Points of an operation; `last_id` is what to ask on from."""

    series: list[Curve]
    last_id: int


class LoggedItem(TypedDict):
    """An image, a table or another item that was logged; its content is served by its id."""

    id: int
    caption: str


class MediaStep(TypedDict):
    """The items that one attempt logged together in one step."""

    step: int
    attempt: int
    type: str
    items: list[LoggedItem]


class LoggedMedia(TypedDict):
    """All steps of one name, in their order."""

    name: str
    steps: list[MediaStep]


class LogChunk(TypedDict):
    """A part of an operation's log."""

    text: str


class LogPage(TypedDict):
    """Consecutive chunks of a log."""

    chunks: list[LogChunk]
    has_more: bool
    last_id: int


class LogLine(TypedDict):
    """A line of an operation's log."""

    text: str
    group: int


class LogLines(TypedDict):
    """The lines of a log that match a search, with those around them."""

    lines: list[LogLine]
    count: int
    has_before: bool


class BestTrial(TypedDict):
    """The best operation of a study."""

    value: float
    values: dict[str, Json]


class Fold(TypedDict):
    """One fold of a walk-forward analysis."""

    number: int
    split: str
    end: str
    values: dict[str, Json] | None
    in_sample: float | None
    out_of_sample: float | None


class Trial(TypedDict):
    """An operation of a study."""

    operation_id: str
    fold: int | None
    is_test: bool
    study_values: dict[str, Json]
    status: str
    value: float | None


class StudyRow(TypedDict):
    """A row of the list of studies."""

    id: str
    name: str
    counts: dict[str, int]  # state → number of operations
    percent: float
    project: str
    metric: str
    mode: str
    owner: str | None
    created_at: str


class Study(StudyRow):
    """One study with its operations."""

    num_planned: int
    left_out: list[Json]
    best: NotRequired[BestTrial | None]
    front: NotRequired[list[str]]
    folds: list[Fold]
    operations: list[Trial]


class Checkpoint(TypedDict):
    """A row of the list of checkpoints."""

    checkpoint_id: str
    checkpoint_type: str
    step: int
    metric: float | None
    artifacts_size_bytes: int
    counted_size_bytes: int
    health: str
    signature: NotRequired[str]
    signed_by: NotRequired[str]
    pinned: bool
    is_best: bool
    best_of: NotRequired[list[str]]
    created_at: str


class Artifact(TypedDict):
    """A file of a checkpoint."""

    name: str
    size_bytes: int
    blake3: str


class OperationArtifact(Artifact):
    """A file of an operation, which is one of a checkpoint."""

    checkpoint_id: str


class CheckpointDetail(Checkpoint):
    """One checkpoint with its files and its state."""

    artifacts: list[Artifact]
    state: JsonObject


class Check(TypedDict):
    """One check of a verification."""

    level: str
    detail: str


class Verification(TypedDict):
    """The result of verifying a checkpoint."""

    checkpoint_id: str
    health: str
    level: str
    message: str
    checks: list[Check]


class Change(TypedDict):
    """A field of the config that would differ."""

    field: str
    before: object
    after: object


class Preview(TypedDict):
    """What a resume, a fork, an extension or a warm start would do."""

    checkpoint_id: str
    step: int
    place: str
    changes: list[Change]
    notes: list[str]
    changed_files: list[str]


class Estimate(TypedDict):
    """Where a submission could run, and its time and size by earlier operations."""

    status: BlockingReason
    worker_ids: list[str]
    num_earlier: int
    seconds: float | None
    checkpoint_bytes: float | None
    notes: list[str]


class Recovery(Message):
    """Checkpoints that were recorded again."""

    checkpoint_ids: list[str]


class Cleanup(TypedDict):
    """What a cleanup deleted, or would delete."""

    dry_run: bool
    num_checkpoints: int
    num_unowned: int
    num_trashed: int
    freed_bytes: int


class Recipe(TypedDict):
    """A recipe with its parameters and an example."""

    name: str
    kind: str
    label: str
    description: str
    example: JsonObject
    json_schema: JsonSchema


class ColumnHistogram(TypedDict):
    """Counts of numbers in bins of one width, the first of which begins at `start`."""

    start: float
    width: float
    counts: list[int]


class Column(TypedDict):
    """A column of a dataset."""

    name: str
    type: str
    missing: int
    note: NotRequired[str]
    shape: NotRequired[list[int]]
    histogram: NotRequired[ColumnHistogram]


class Dataset(TypedDict):
    """An uploaded dataset."""

    id: str
    name: str
    format: str
    num_rows: int
    num_columns: int
    columns: list[Column]


class Upload(TypedDict):
    """An upload in parts."""

    id: str
    size_bytes: int
    offset: int
    digest: str
    fingerprint: str
    dataset_id: str | None


class ClassCount(TypedDict):
    """A class of a directory of images and the number of its files."""

    name: str
    count: int


class DirectoryDescription(TypedDict):
    """The content of a registered directory."""

    layout: str
    title: str
    num_files: int
    num_bytes: int
    num_examples: int | None
    classes: list[ClassCount]


class DirectoryDataset(Dataset):
    """A registered directory."""

    path: str
    layout: DirectoryDescription


class DatasetRow(TypedDict):
    """A row of the list of datasets."""

    id: str
    name: str
    format: str
    num_rows: int
    size_bytes: int
    owner: str | None
    created_at: str


class DirectoryVerification(TypedDict):
    """The result of verifying a registered directory."""

    is_unchanged: bool
    problems: list[str]
    num_files: int
    num_files_read: int
    num_bytes: int
    num_bytes_read: int
    seed: int | None


class Worker(TypedDict):
    """A row of the list of workers."""

    worker_id: str
    status: str
    slots: int
    num_running: int
    kinds: list[str]
    labels: NotRequired[list[str] | None]
    ends_at: NotRequired[str | None]
    idle_exit_seconds: NotRequired[float | None]
    storage_problem: NotRequired[str]
    dataset_problem: NotRequired[str]
    heartbeat_at: str | None
