"""What a run may still spend: its own path through the ledger, and all that the ledger holds."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trainops.kinds.federated.account import Account, Measure
from trainops.kinds.federated.options import MEASURES, PrivacyConfig
from trainops.kinds.federated.release_log import entries_of, new_path, rows_of
from trainops.kinds.federated.releases import LEVELS, Level, Release, ReleaseLedger
from trainops.lazy import load
from trainops.runtime.checkpoint.stream import Stream
from trainops.runtime.errors import IncompatibleState, LedgerMismatch

NO_TIGHTER = "; prv gives no smaller figure here, or would take minutes and gigabytes"


class PrivacyBudget:
    """The releases on this run's path, in order, and what the ledger knows beside them.

    What the ledger has and the path has not is either ahead (the run died after it was written
    down, and will come to it again, bit for bit) or aside: of an ancestor, or of a way that was
    left. What is ahead counts against the budget, what is aside is also shown. So figures are a
    function of the step as long as every resume is exact, and never less than what was spent.
    """

    def __init__(self, config: PrivacyConfig, ledger: ReleaseLedger) -> None:
        self.config, self.ledger = config, ledger
        self.path = new_path()
        self._measure: Measure = load(MEASURES[config.accountant])
        self._own = self._account()  # of the path
        self._shown = self._account()  # with what is aside
        self._total = self._account()  # with what is ahead, too
        self._beside: dict[str, Release] = {}  # in the ledger, and not on the path
        self._ahead: dict[str, Release] = {}
        self._look_into_ledger(step=0, on_path=())

    @property
    def epsilon(self) -> float:
        """What was spent up to here, on this way or another."""
        return self._shown.epsilon

    @property
    def path_epsilon(self) -> float:
        return self._own.epsilon

    def figures(self) -> dict[str, Any]:
        """Return what people read, by name."""
        is_asked = self.config.accountant == "prv"
        return {
            "epsilon": self.epsilon,
            "path_epsilon": self.path_epsilon,
            **{f"{level}_epsilon": self._shown.of(level) for level in LEVELS},
            **({"figures_by": self._shown.accountants} if is_asked else {}),
        }

    def total(self) -> dict[str, float]:
        """Return what the whole ledger comes to."""
        return {
            "epsilon": self._total.epsilon,
            **{f"{level}_epsilon": self._total.of(level) for level in LEVELS},
        }

    def accountants(self) -> list[str]:
        """Return the names of the accountants that gave the figures of `total`."""
        return self._total.accountants

    @property
    def note(self) -> str:
        """What a receipt says of it."""
        by = " and ".join(self._shown.accountants) or self.config.accountant
        return f"epsilon {self.epsilon:.6g} by {by}{self._why(self._shown)}"

    @property
    def warning(self) -> str:
        """What a result says where another accountant than was asked for gave its figures."""
        why = self._why(self._total)
        return f"privacy.accountant is prv, and epsilon is by Rényi divergences{why}" if why else ""

    def is_known(self, noise: str) -> bool:
        """Whether this very release was written down before."""
        return noise in self._beside

    def is_ahead(self, level: Level, *, step: int = -1, round_number: int = -1) -> bool:
        """Whether a release of this step or round is written down that the run is yet to meet."""
        return any(
            each.level == level and (each.step == step or each.round == round_number)
            for each in self._ahead.values()
        )

    def was_sampled(self, entry: Release) -> bool:
        """Whether a release of its round is written down, of other noise: of the same sample."""
        return any(
            (other.round, other.level) == (entry.round, entry.level) and other.noise != entry.noise
            for other in self._beside.values()
        )

    def affords(self, entry: Release) -> bool:
        """Whether the budget has room for it; what was written down before costs nothing."""
        target = self.config.target_epsilon
        if target is None or self.is_known(entry.noise):
            return True
        return self._total.with_entry(entry) <= target

    def spend(self, entry: Release) -> None:
        """Write it down before it happens, unless it is known, and go over it."""
        if known := self._beside.pop(entry.noise, None):
            if _what(known) != _what(entry):
                raise LedgerMismatch(f"{_name(entry)} is written down with other figures")
            entry, is_aside = known, self._ahead.pop(entry.noise, None) is None
        else:
            self.ledger.record([entry])
            self._total.add([entry])
            is_aside = False
        self.path.append(rows_of([entry], self.ledger.secret))
        self._own.add([entry])
        if not is_aside:
            self._shown.add([entry])

    def learn(self, entries: Sequence[Release], step: int) -> None:
        """Take in what clients on other machines wrote down, up to this step and beyond it."""
        known = self.ledger.identities()
        new = [entry for entry in entries if entry.noise not in known]
        if not new:
            return
        self.ledger.record(new)
        self._total.add(new)
        self._beside |= {entry.noise: entry for entry in new}
        self._ahead |= {entry.noise: entry for entry in new if entry.step > step}
        self._shown.add(entry for entry in new if entry.step <= step)

    def foresight(self) -> Account:
        """Return an account of all that was spent, to see what there would be room for."""
        return self._total.copy()

    def passed(self, step: int) -> None:
        """Count as aside what was written down for a step that is over, and not met."""
        aside = [entry for entry in self._ahead.values() if entry.step <= step]
        for entry in aside:
            del self._ahead[entry.noise]
        self._shown.add(aside)

    def thawed(self, path: Stream, figures: Mapping[str, Any], step: int) -> "PrivacyBudget":
        """Return a purse at a saved place.

        Raises LedgerMismatch where the ledger does not have what the path went over, or comes to
        less than was spent; IncompatibleState where path and figures are not of one run.
        """
        entries = entries_of(path, self.ledger.secret)
        budget = PrivacyBudget(self.config, self.ledger)
        if not self.ledger.is_durable:  # nobody else remembers
            self.ledger.record(entries)
        known = {entry.noise: entry for entry in self.ledger.releases()}
        for entry in entries:
            if _what(known.get(entry.noise)) != _what(entry):
                how = "has it with other figures" if entry.noise in known else "lacks it"
                raise LedgerMismatch(f"the checkpoint went over {_name(entry)}, the ledger {how}")
        budget.path = path.copy()
        budget._look_into_ledger(step, on_path=[known[entry.noise] for entry in entries])
        budget._require(figures)
        return budget

    def _why(self, account: Account) -> str:
        """Return why figures are not by the accountant that was asked for; empty where they are."""
        is_other = self.config.accountant == "prv" and "rdp" in account.accountants
        return NO_TIGHTER if is_other else ""

    def _require(self, figures: Mapping[str, Any]) -> None:
        try:
            path, shown = float(figures["path_epsilon"]), float(figures["epsilon"])
        except (KeyError, TypeError, ValueError) as error:
            raise IncompatibleState(f"the state's privacy cannot be read: {error!r}") from error
        # Before its work was bounded, the tighter accountant gave figures that are Rényi's now.
        is_rougher = bool(self._why(self._own)) and self.path_epsilon > path
        if not (_is_same(path, self.path_epsilon) or is_rougher):
            raise LedgerMismatch(
                f"the checkpoint says that its way cost epsilon {path:g}, the ledger "
                f"{self.path_epsilon:g}"
            )
        if self.ledger.is_durable and self._total.epsilon < shown and not _is_same(
            self._total.epsilon, shown
        ):  # fmt: skip
            raise LedgerMismatch(
                f"the checkpoint knows of epsilon {shown:g}, the ledger of {self._total.epsilon:g}"
            )

    def _look_into_ledger(self, step: int, on_path: Sequence[Release]) -> None:
        met = {entry.noise for entry in on_path}
        spent = [entry for entry in self.ledger.releases() if entry.is_release]
        self._beside = {entry.noise: entry for entry in spent if entry.noise not in met}
        self._ahead = {n: e for n, e in self._beside.items() if e.is_own and e.step > step}
        self._own, self._shown, self._total = self._account(), self._account(), self._account()
        self._own.add(on_path)
        self._shown.add(on_path)
        self._shown.add(e for noise, e in self._beside.items() if noise not in self._ahead)
        self._total.add(on_path)
        self._total.add(self._beside.values())

    def _account(self) -> Account:
        account = Account(self.config.delta, self._measure)
        account.add(entry for entry in self.ledger.releases() if not entry.is_release)
        return account


def _what(entry: Release | None) -> tuple[object, ...] | None:
    """Return what an entry released, apart from how likely each member was to be in it."""
    if entry is None:
        return None
    return entry.client, entry.level, entry.noise_multiplier, entry.steps, entry.carried


def _name(entry: Release) -> str:
    """Return what people call a release; whose it was may be a secret."""
    return f"release {entry.noise} (step {entry.step}, round {entry.round}, {entry.level} level)"


def _is_same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
