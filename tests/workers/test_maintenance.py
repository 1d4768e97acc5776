"""What a sweep does where one of its parts breaks."""

import pytest

from apps.operations import clients, studies, sweeps
from apps.operations.portions import Portions
from apps.workers import hosts, maintenance, neighbours

PARTS = [
    (neighbours, "recover_ended"),
    (sweeps, "sweep"),
    (studies, "advance_all"),
    (clients, "settle_all"),
    (hosts, "drain_faulty"),
]


@pytest.mark.parametrize("broken", PARTS, ids=[name for _, name in PARTS])
def test_a_part_that_breaks_keeps_no_other_from_its_turn(monkeypatch, broken):
    called = []

    def part(name):
        def call(**_):
            called.append(name)
            if name == broken[1]:
                raise ZeroDivisionError(name)

        return call

    for module, name in PARTS:
        monkeypatch.setattr(module, name, part(name))
    with pytest.raises(ZeroDivisionError, match=broken[1]):
        maintenance.sweep(actor="beat")
    assert called == [name for _, name in PARTS]


def test_portions_go_on_after_the_last_one_and_begin_again():
    portions, keys = Portions(size=2), ["d", "a", "c", "b", "e"]
    taken = [portions.next(keys) for _ in range(3)]
    assert taken == [["a", "b"], ["c", "d"], ["e", "a"]]
    assert portions.next([]) == []
    assert portions.next(["x"]) == portions.next(["x"]) == ["x"]
