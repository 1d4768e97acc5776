"""What is misconfigured in this installation, with the remedy: `trainops doctor`."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from apps.workers.diagnosis import machine, people, sign_in, stores, web, workers
from apps.workers.diagnosis.findings import Diagnosis, Level

logger = logging.getLogger(__name__)
Check = Callable[[], Iterable[Diagnosis]]
CHECKS: Mapping[str, Check] = {
    "database": stores.database,
    "migrations": stores.migrations,
    "broker": stores.broker,
    "storage": stores.storage,
    "disk space": machine.disk_space,
    "clocks": workers.clocks,
    "file limits": machine.file_limits,
    "temporary files": machine.temporary_files,
    "web": web.settings_of_web,
    "data directory": web.data_directory,
    "signatures": stores.signatures,
    "second factors": sign_in.second_factors,
    "sign-in provider": sign_in.provider,
    "workers": workers.registered,
    "background work": workers.background_work,
    "notifications": people.notifications,
    "CUDA": machine.cuda,
}
NEEDS_DATABASE = frozenset(
    {
        "migrations", "storage", "clocks", "signatures", "second factors", "workers",
        "background work", "notifications",
    }
)  # fmt: skip
NEEDS_MIGRATIONS = NEEDS_DATABASE - {"migrations"}


@dataclass(frozen=True, slots=True)
class Result:
    check: str
    finding: Diagnosis

    def to_json(self) -> dict[str, str]:
        level, message, remedy = self.finding.level, self.finding.message, self.finding.remedy
        return {"check": self.check, "level": level, "message": message, "remedy": remedy}


def diagnose(checks: Mapping[str, Check] = CHECKS) -> Iterator[Result]:
    """Yield what each check found. What rests on something that is broken is not asked."""
    left_out: set[str] = set()
    for name, check in checks.items():
        if name in left_out:
            continue
        for finding in _findings(check):
            yield Result(name, finding)
            if finding.level is Level.PROBLEM and name == "database":
                left_out |= NEEDS_DATABASE
            if finding.level is Level.PROBLEM and name == "migrations":
                left_out |= NEEDS_MIGRATIONS


def _findings(check: Check) -> Iterator[Diagnosis]:
    try:
        yield from check()
    except Exception as error:  # the others are made all the same
        logger.debug("a check of the doctor", exc_info=True)
        what = f"it could not be checked: {type(error).__name__}: {error}"
        yield Diagnosis.problem(" ".join(what.split())[:300], "Report this as a bug of trainops.")
