"""What the judge of storms finds where a restore did not bring back what there was."""

from dataclasses import dataclass, field

import pytest

from tests.faults.judge import Outcome, not_restored

DONE = Outcome({"model.pt": "1f"}, [("loss", 1, 0.5)])
OTHER_FILES, OTHER_CURVE = Outcome({"model.pt": "2e"}, DONE.curve), Outcome(DONE.files, [])
FINISHED, UNFINISHED = {"op_1": DONE}, ["op_2"]


@dataclass
class Restored:
    """What a restored installation answers."""

    states: dict[str, str]
    outcomes: dict[str, Outcome] = field(default_factory=lambda: {"op_1": DONE})

    def get(self, path, **_):
        if path == "operations":
            return [{"id": each} for each in self.states]
        return {"state": self.states[path.removeprefix("operations/")]}

    def artifacts(self, operation_id):
        return self.outcomes[operation_id].files

    def curve(self, operation_id):
        return self.outcomes[operation_id].curve


def test_a_restore_of_everything_has_no_violation():
    whole = Restored({"op_1": "COMPLETED", "op_2": "RESUMING"})
    assert list(not_restored(whole, FINISHED, UNFINISHED)) == []


@pytest.mark.parametrize(
    ("restored", "violation"),
    [
        (Restored({"op_1": "COMPLETED"}), "I9 of the backup are missing: ['op_2']"),
        (
            Restored({"op_1": "COMPLETED", "op_2": "PENDING", "op_3": "PENDING"}),
            "I9 were not in the backup: ['op_3']",
        ),
        (
            Restored({"op_1": "FAILED", "op_2": "RUNNING"}),
            "I9 op_1 is FAILED, and was COMPLETED in the backup",
        ),
        *(
            (
                Restored({"op_1": "COMPLETED", "op_2": "RUNNING"}, {"op_1": other}),
                "I9 op_1: its result is not that of the backup",
            )
            for other in (OTHER_FILES, OTHER_CURVE)
        ),
    ],
    ids=["missing", "further", "state", "files", "curve"],
)
def test_each_difference_is_a_violation(restored, violation):
    assert list(not_restored(restored, FINISHED, UNFINISHED)) == [violation]
