"""Small federated runs, with a ledger that outlives each of their attempts."""

from tests.engines.contract import Case, MachineDied, ScriptedSupervisor, attempt
from trainops.kind import KINDS
from trainops.kinds.federated.releases import Release
from trainops.runtime.ledger import MemoryLedger

SMALL = {
    "recipe": "crowd", "rounds": 3, "clients": 4, "local_epochs": 2, "batch_size": 6,
    "optimizer": "adam", "server": {"strategy": "fedavgm"},
    "checkpoint": {"every_client_epochs": 1000},
}  # fmt: skip
PRIVACY = {
    "none": {},
    "sample": {"noise_multiplier": 1.0},
    "user": {"user_noise_multiplier": 1.0},
    "hybrid": {"noise_multiplier": 1.0, "user_noise_multiplier": 2.0},
}
SECRET = b"of the tests"


def case(keeping="none", privacy=(), **config):
    """Return a small run's case; None in `privacy` leaves a setting out."""
    privacy = {"mode": keeping, **PRIVACY[keeping], **dict(privacy)}
    return Case("federated", keeping, {**SMALL, "privacy": privacy, **config}, stops=())


def make_job(keeping="none", ledger=None, **config):
    engine = KINDS["federated"]
    parsed = engine.parse_config({"seed": 7, **case(keeping, **config).config})
    return engine.make_job(parsed, {}, ledger)


def run_through(job):
    """Advance to the end; return the recorded points by step."""
    points = {}
    while job.step < job.total_steps:
        if metrics := job.advance():
            points[job.step] = dict(metrics)
    return points


def releases_of(entries):
    return [Release.from_entry(each) for each in entries]


class ServerLedger(MemoryLedger):
    """Outlives attempts, as rows of a database do; may see the machine die after a write."""

    def __init__(self, spent=(), *, secret=SECRET):
        super().__init__((each.to_entry() for each in spent), secret=secret, is_durable=True)
        self.dies_after = None

    def spent(self):
        return releases_of(self.entries())

    def releases(self):
        """Return what was spent, without what only says how."""
        return [entry for entry in self.spent() if entry.is_release]

    def append(self, entries):
        super().append(entries)
        if self.dies_after is not None and len(self.entries()) > self.dies_after:
            self.dies_after = None
            raise MachineDied


def go(case, root, ledger, *, at=None, dies=False, resume=(), number=1, **more):
    """Run an attempt; return what its supervisor heard, whether or not it died."""
    supervisor = ScriptedSupervisor(at=at, dies=dies)
    try:
        attempt(case, root, supervisor, resume=resume, number=number, ledger=ledger, **more)
    except MachineDied:
        assert dies
    return supervisor
