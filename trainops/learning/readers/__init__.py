"""Map-style datasets over files; their memory follows the batch, not the data.

Each takes a path or a registered directory (`run.directory`), can be pickled for worker processes
of a loader, and opens its files where they are first read. A file that cannot be read raises
DataError, which names it.
"""

from trainops.learning.readers.arrays import ArrayRows
from trainops.learning.readers.arrow import ArrowRows
from trainops.learning.readers.images import ImageFolder, ImagePairs
from trainops.learning.readers.lines import JsonLines, TextLines
from trainops.learning.readers.parquet import ParquetRows
from trainops.learning.readers.tars import TarShards

__all__ = [
    "ArrayRows",
    "ArrowRows",
    "ImageFolder",
    "ImagePairs",
    "JsonLines",
    "ParquetRows",
    "TarShards",
    "TextLines",
]
