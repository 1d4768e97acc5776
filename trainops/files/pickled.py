"""Reading a pickle without obeying it.

The few instructions that torch.save writes are followed on a stack of outlines; all others, and
those that make no sense where they stand, are refused.
"""

import struct
from collections.abc import Callable
from pickle import decode_long
from typing import Any, TypeGuard

from trainops.files.calls import Calls
from trainops.files.errors import DamagedFile, FileTooLarge, FormatError
from trainops.files.outline import (
    EXPANSION,
    MAX_DEPTH,
    SLACK,
    ArrayOutline,
    DtypeOutline,
    Name,
    Outline,
    StorageOutline,
    children,
    entries_of,
)

MAX_KEY = 2**61 - 2  # larger numbers can be chosen so that all of them collide in a dict
NUMBERS = (int, float, bool)
PROTOCOL = b"\x80\x02"
STOP = 0x2E
NONSENSE = (IndexError, KeyError, TypeError, ValueError, OverflowError, struct.error)


def outline_of(content: bytes, calls: Calls) -> Outline:
    """Return what the pickle describes. Raises FormatErrors."""
    machine = _Machine(content, calls)
    try:
        root = machine.run()
    except FormatError:
        raise
    except NONSENSE as error:
        raise DamagedFile(f"the pickle cannot be followed: {error!r}"[:200]) from error
    _check_values(root, EXPANSION * len(content) + SLACK)
    return Outline(root, frozenset(calls.enums))


class _Machine:
    def __init__(self, content: bytes, calls: Calls) -> None:
        self.content = content
        self.calls = calls
        self.at = 0
        self.stack: list[object] = []
        self.marked: list[list[object]] = []
        self.memo: dict[int, object] = {}

    def run(self) -> object:
        if self.take(2) != PROTOCOL:
            raise DamagedFile("the pickle is not of protocol 2, which torch.save writes")
        while (opcode := self.take(1)[0]) != STOP:
            if opcode not in INSTRUCTIONS:
                raise DamagedFile(f"the pickle has the instruction {bytes([opcode])!r}")
            INSTRUCTIONS[opcode](self)
        if self.at != len(self.content) or len(self.stack) != 1 or self.marked:
            raise DamagedFile("the pickle goes on after its end")
        return self.stack[0]

    def take(self, count: int) -> bytes:
        chunk = self.content[self.at : self.at + count]
        if len(chunk) != count:
            raise DamagedFile("the pickle ends too early")
        self.at += count
        return chunk

    def push(self, value: object) -> None:
        self.stack.append(value)

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> str:
        end = self.content.index(b"\n", self.at)
        text = self.content[self.at : end].decode("utf-8")
        self.at = end + 1
        return text

    def pop_marked(self) -> list[object]:
        items, self.stack = self.stack, self.marked.pop()
        return items

    def find(self) -> None:
        module, name = self.line(), self.line()
        self.push(self.calls.find(f"{module}.{name}"))

    def mark(self) -> None:
        self.marked.append(self.stack)
        self.stack = []

    def call(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        self.push(self.calls.call(function, arguments))

    def build(self) -> None:
        state = self.stack.pop()
        self.calls.build(self.stack[-1], state)

    def storage(self) -> None:
        self.push(self.calls.storage(self.stack.pop()))

    def text(self) -> None:
        self.push(str(self.take(self.number("<I")), "utf-8"))

    def long(self) -> None:
        self.push(decode_long(self.take(self.number("B"))))

    def group(self, size: int) -> None:
        items = [self.stack.pop() for _ in range(size)]
        self.push((*reversed(items),))

    def append(self, items: list[object]) -> None:
        target = self.stack[-1]
        if type(target) is not list:
            raise DamagedFile("something is appended to what is no list")
        target.extend(items)

    def set_items(self, items: list[object]) -> None:
        entries = entries_of(self.stack[-1])
        if not isinstance(entries, dict) or len(items) % 2:
            raise DamagedFile("something is set in what is no dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is not str and not (_is_number(key) and abs(key) <= MAX_KEY):
                raise DamagedFile("a dict has a key that is neither a string nor a number")
            entries[key] = value


def _is_number(value: object) -> TypeGuard[float]:
    return type(value) in NUMBERS


def _push(value: object) -> Callable[[_Machine], None]:
    return lambda machine: machine.push(value)


def _push_new(make: Callable[[], object]) -> Callable[[_Machine], None]:
    return lambda machine: machine.push(make())


def _push_number(form: str) -> Callable[[_Machine], None]:
    return lambda machine: machine.push(machine.number(form))


def _push_tuple(size: int) -> Callable[[_Machine], None]:
    return lambda machine: machine.group(size)


def _recall(form: str) -> Callable[[_Machine], None]:
    return lambda machine: machine.push(machine.memo[machine.number(form)])


def _remember(form: str) -> Callable[[_Machine], None]:
    def remember(machine: _Machine) -> None:
        machine.memo[machine.number(form)] = machine.stack[-1]

    return remember


INSTRUCTIONS: dict[int, Callable[[_Machine], None]] = {
    ord("c"): _Machine.find,
    ord("R"): _Machine.call,
    ord("b"): _Machine.build,
    ord("Q"): _Machine.storage,
    ord("("): _Machine.mark,
    ord("a"): lambda machine: machine.append([machine.stack.pop()]),
    ord("e"): lambda machine: machine.append(machine.pop_marked()),
    ord("s"): lambda machine: machine.set_items([machine.stack.pop(), machine.stack.pop()][::-1]),
    ord("u"): lambda machine: machine.set_items(machine.pop_marked()),
    ord("t"): lambda machine: machine.push((*machine.pop_marked(),)),
    0x85: _push_tuple(1),
    0x86: _push_tuple(2),
    0x87: _push_tuple(3),
    ord(")"): _push(()),
    ord("]"): _push_new(list),
    ord("}"): _push_new(dict),
    ord("N"): _push(None),
    0x88: _push(True),
    0x89: _push(False),
    ord("J"): _push_number("<i"),
    ord("K"): _push_number("B"),
    ord("M"): _push_number("<H"),
    ord("G"): _push_number(">d"),
    ord("X"): _Machine.text,
    0x8A: _Machine.long,
    ord("h"): _recall("B"),
    ord("j"): _recall("<I"),
    ord("q"): _remember("B"),
    ord("r"): _remember("<I"),
}


def _check_values(root: object, num_left: int) -> None:
    """Refuse what is nested too deep, refers to itself, or was never finished."""
    level = [root]
    for _ in range(MAX_DEPTH):
        below: list[object] = []
        for node in level:
            _check_value(node)
            below.extend(children(node))
            if len(below) > num_left:
                raise FileTooLarge("the file's values unfold to many times its size")
        num_left -= len(below)
        level = below
        if not level:
            return
    raise FileTooLarge(f"the file's values are nested more than {MAX_DEPTH} deep")


def _check_value(node: object) -> None:
    if isinstance(node, Name | StorageOutline | DtypeOutline):
        raise DamagedFile("a function or a type stands where a value should")
    if isinstance(node, ArrayOutline) and node.shape is None:
        raise DamagedFile("an array has no shape")
