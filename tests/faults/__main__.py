"""`python3 -m trainops chaos --seconds N --seed S`: a storm for as long as one likes."""

import sys
import time

from tests.faults.faults import FAULTS
from tests.faults.installations import one_machine, two_machines
from tests.faults.options import parser
from tests.faults.storm import Storm


def main() -> int:
    options = parser().parse_args()
    if unknown := set(options.only) - {each.name for each in FAULTS}:
        parser().error(f"unknown faults: {', '.join(sorted(unknown))}")
    began = time.monotonic()
    start = two_machines if options.postgres else one_machine
    with start() as installation:
        storm = Storm(installation, options.seed, faults=options.only)
        seconds = options.seconds if options.faults is None else 0
        storm.run(seconds=seconds, num_faults=options.faults or 0)
        _tell(storm, time.monotonic() - began)
    return int(bool(storm.violations))


def _tell(storm: Storm, seconds: float) -> None:
    say = sys.stdout.write
    say(f"seed {storm.seed}: {storm.counts.total()} faults in {seconds:.0f} s\n")
    for name, count in sorted(storm.counts.items()):
        say(f"  {count:5} {name}\n")
    begun = ", ".join(f"{count} {kind}" for kind, count in sorted(storm.num_begun.items()))
    say(f"{storm.num_judged} operations judged ({begun}); their attempts ended with\n")
    for name, count in sorted(storm.reasons.items()):
        say(f"  {count:5} {name}\n")
    if storm.num_lost:
        say(f"{storm.num_lost} operations were begun after a backup that was restored\n")
    if "disk" not in storm.over.has:
        say("left out: fill disk, storage away, foreign storage (mounting needs root)\n")
    for violation in storm.violations:
        say(f"VIOLATION {violation}\n")
    say(f"{len(storm.violations)} violations\n")


if __name__ == "__main__":
    sys.exit(main())
