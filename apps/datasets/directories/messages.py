"""What a confined process is asked about a directory, and what it answers."""

from typing import Literal, TypedDict

from trainops.datasets.description import DirectoryDescription, DirectoryVerification
from trainops.datasets.sampling import Sample


class DirectoryRequest(TypedDict):
    """`manifest` is written ("add") or read ("verify"); links may lead below `allowed`.

    Of a prefix in a bucket, `source` is its URL with options; otherwise it is empty. A
    verification reads all files without a `sample`, of which JSON makes a list.
    """

    action: Literal["add", "verify"]
    root: str
    allowed: list[str]
    manifest: str
    source: str
    sample: Sample | None


class DirectoryAnswer(TypedDict, total=False):
    """The answer to a request: `added`, `verified` or `refused`."""

    added: "Added"
    verified: DirectoryVerification
    refused: str


class Added(TypedDict):
    """The description of a directory; `first` are the first files with their sizes."""

    layout: DirectoryDescription
    changed_ns: int
    first: list[tuple[str, int]]
