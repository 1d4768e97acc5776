"""What is remembered of operations: themselves, their attempts and records, studies and uses."""

from apps.operations.models.chart_choices import ChartChoice
from apps.operations.models.latest_values import LatestValue
from apps.operations.models.media import Media
from apps.operations.models.nodes import Node
from apps.operations.models.operation import MAX_NAME_LENGTH, Operation
from apps.operations.models.past_use import PastUse
from apps.operations.models.queryset import OperationQuerySet
from apps.operations.models.records import (
    Attempt,
    Event,
    LogChunk,
    MetricPoint,
    PackedPoints,
    Study,
    Subscription,
    Suggestion,
    Tag,
)
from apps.operations.models.references import DatasetUse, ModelUse
from apps.operations.models.saved_views import SavedView
from apps.operations.models.shares import Share
from apps.operations.models.subtasks import Subtask

__all__ = [
    "MAX_NAME_LENGTH",
    "Attempt",
    "ChartChoice",
    "DatasetUse",
    "Event",
    "LatestValue",
    "LogChunk",
    "Media",
    "MetricPoint",
    "ModelUse",
    "Node",
    "Operation",
    "OperationQuerySet",
    "PackedPoints",
    "PastUse",
    "SavedView",
    "Share",
    "Study",
    "Subscription",
    "Subtask",
    "Suggestion",
    "Tag",
]
