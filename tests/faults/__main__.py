"""`python3 -m trainops chaos --seconds N --seed S`: a storm for as long as one likes."""

import argparse
import os
import secrets
import sys
import tempfile
from pathlib import Path

from tests.faults.storm import Storm
from tests.journey.stack import running


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m trainops chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--postgres", action="store_true", help="on an embedded PostgreSQL")
    options = parser.parse_args()
    os.environ["TRAINOPS_RECIPES"] = "tests.recipes.scripted:RECIPE"
    with tempfile.TemporaryDirectory() as directory:
        arguments = ["--postgres"] if options.postgres else []
        Path(directory).chmod(0o755)
        with running(Path(directory) / "var", *arguments, workers=2) as stack:
            storm = Storm(stack, options.seed)
            storm.run(seconds=options.seconds)
    sys.stdout.write(f"seed {options.seed}, {storm.counts.total()} faults\n")
    for name, count in sorted(storm.counts.items()):
        sys.stdout.write(f"  {count:5} {name}\n")
    for violation in storm.violations:
        sys.stdout.write(f"VIOLATION {violation}\n")
    sys.stdout.write(f"{len(storm.violations)} violations\n")
    return int(bool(storm.violations))


if __name__ == "__main__":
    sys.exit(main())
