"""Make data to register as a directory: docs/datasets.md.

python3 -m examples.directories digits PATH    # 1797 images in ten class folders
python3 -m examples.directories table PATH     # a million rows in Parquet files
python3 -m examples.directories reviews PATH   # sentences with labels, as JSON lines
"""

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from sklearn.datasets import load_digits

ROWS_PER_FILE, ROWS_PER_GROUP = 100_000, 10_000
NOUNS = ("film", "plot", "music", "cast", "ending", "script", "camera", "story")
JUDGEMENTS = (
    ("dull", "awful", "weak", "boring", "poor"),
    ("great", "superb", "moving", "clever", "fine"),
)


def digits(root: Path) -> None:
    """Write the handwritten digits of scikit-learn as CLASS/NUMBER.png."""
    found = load_digits()
    for number, (pixels, label) in enumerate(zip(found.images, found.target, strict=True)):
        path = root / str(label) / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 15).astype(np.uint8)).save(path)


def table(root: Path, num_files: int = 10) -> None:
    """Write rows of eight numbers and a target; only one file is in memory at a time."""
    root.mkdir(parents=True, exist_ok=True)
    for number in range(num_files):
        rng = np.random.default_rng(number)
        inputs = rng.normal(size=(ROWS_PER_FILE, 8)).astype(np.float32)
        target = np.sin(inputs[:, 0]) + inputs[:, 1] * inputs[:, 2]
        columns = {f"x{n}": inputs[:, n] for n in range(8)} | {"target": target}
        path = root / f"part-{number:03d}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=ROWS_PER_GROUP)


def reviews(root: Path, number: int = 600) -> None:
    """Write sentences that praise (1) or blame (0)."""
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    with (root / "reviews.jsonl").open("w") as file:
        for _ in range(number):
            label = int(rng.integers(2))
            words = ["the", rng.choice(NOUNS), rng.choice(["was", "is"]), rng.choice(["", "very"])]
            text = " ".join(filter(None, [*words, rng.choice(JUDGEMENTS[label])]))
            file.write(json.dumps({"text": text, "label": label}) + "\n")


if __name__ == "__main__":
    made = {"digits": digits, "table": table, "reviews": reviews}
    made[sys.argv[1]](Path(sys.argv[2]))
