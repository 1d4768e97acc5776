"""TensorBoard: one event file for each operation, in a directory named by its id.

The file is written anew each time, under the next number. It begins with a session start at step
0, which has TensorBoard discard what it has read of the directory before: a server that is running
follows, and a crash before the earlier file is emptied leaves no point twice. TensorBoard stops
following a directory if the file that it has read last is deleted, so the latest ones are emptied.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.record_writer import RecordWriter

from trainops.sinks.details import Details, Pages
from trainops.sinks.drafts import drafts, publish

NAME = "events.out.tfevents.{:010d}.trainops"
VERSION = "brain.Event:2"
MAX_EMPTIED = 20  # more than TensorBoard misses between two reads


def write(directory: Path, details: Details, pages: Pages) -> None:
    """Write the event file of an operation; see `known.write`."""
    folder = directory / details.id
    with drafts(folder) as scratch:
        draft = scratch / "events"
        with draft.open("wb") as file:
            records = RecordWriter(file)
            for event in _events(details, pages):
                records.write(event.SerializeToString())
        earlier = sorted(folder.glob(NAME.replace("{:010d}", "*")))
        last = int(earlier[-1].name.split(".")[-2]) if earlier else 0
        publish(draft, folder / NAME.format(last + 1))
    for each in earlier:
        os.truncate(each, 0)
    for each in earlier[:-MAX_EMPTIED]:
        each.unlink()


def _events(details: Details, pages: Pages) -> Iterator[Event]:
    began = details.started_at.timestamp()
    yield Event(wall_time=began, file_version=VERSION)
    yield Event(wall_time=began, session_log=SessionLog(status=SessionLog.START))
    described = {"name": details.name, "kind": details.kind, "config": dict(details.config)}
    yield Event(wall_time=began, summary=_text("operation", json.dumps(described, indent=2)))
    for page in pages:
        for point in page:
            value = Summary.Value(tag=point.name, simple_value=point.value)
            yield Event(
                wall_time=point.at.timestamp(), step=point.step, summary=Summary(value=[value])
            )


def _text(tag: str, text: str) -> Summary:
    """Return JSON for the tab Text, as a block of Markdown."""
    plugin = SummaryMetadata.PluginData(plugin_name="text")
    tensor = TensorProto(dtype=DT_STRING, string_val=[f"```\n{text}\n```".encode()])
    metadata = SummaryMetadata(plugin_data=plugin)
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])
