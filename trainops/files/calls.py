"""What a pickle may ask for: a closed list, each with the arguments that make it harmless."""

from collections.abc import Mapping
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import NoReturn, TypeGuard

from trainops.files.errors import DamagedFile, FileTooLarge, ForbiddenContent
from trainops.files.outline import (
    EXPANSION,
    SLACK,
    ArrayOutline,
    DtypeOutline,
    Name,
    Ordered,
    ScalarOutline,
    StorageOutline,
    TensorOutline,
    elements,
)

STORAGES = {
    "torch.FloatStorage": ("float32", 4),
    "torch.DoubleStorage": ("float64", 8),
    "torch.HalfStorage": ("float16", 2),
    "torch.BFloat16Storage": ("bfloat16", 2),
    "torch.LongStorage": ("int64", 8),
    "torch.IntStorage": ("int32", 4),
    "torch.ShortStorage": ("int16", 2),
    "torch.CharStorage": ("int8", 1),
    "torch.ByteStorage": ("uint8", 1),
    "torch.BoolStorage": ("bool", 1),
    "torch.ComplexFloatStorage": ("complex64", 8),
    "torch.ComplexDoubleStorage": ("complex128", 16),
}
UNTYPED = "torch.storage.UntypedStorage"  # of the types below; the tensor names its own
DTYPES = {
    "torch.uint16": ("uint16", 2),
    "torch.uint32": ("uint32", 4),
    "torch.uint64": ("uint64", 8),
    "torch.float8_e4m3fn": ("float8_e4m3fn", 1),
    "torch.float8_e4m3fnuz": ("float8_e4m3fnuz", 1),
    "torch.float8_e5m2": ("float8_e5m2", 1),
    "torch.float8_e5m2fnuz": ("float8_e5m2fnuz", 1),
}
NUMPY_TYPES = {
    "f4": ("float32", 4),
    "f8": ("float64", 8),
    "i4": ("int32", 4),
    "i8": ("int64", 8),
    "u1": ("uint8", 1),
    "u4": ("uint32", 4),
    "b1": ("bool", 1),
}
NAMES = frozenset(
    {
        "collections.OrderedDict",
        "torch._utils._rebuild_tensor_v2",
        "torch._utils._rebuild_tensor_v3",
        "torch._utils._rebuild_parameter",
        "_codecs.encode",
        "numpy.ndarray",
        "numpy.dtype",
        "numpy._core.multiarray._reconstruct",
        "numpy._core.multiarray.scalar",
        UNTYPED,
        *STORAGES,
        *DTYPES,
    }
)
NUMPY_1, NUMPY_2 = "numpy.core.", "numpy._core."
# Enumerations that a training file's config may hold: only the member's value is taken.
ENUM_PACKAGE, SIGNALS = "model_training_framework.", "signal.Signals"
# Paths that it may hold, under both names that Python has had for the module: read as text.
PATHS: Mapping[str, type[PurePath]] = {
    f"{module}.{prefix}{name}": kind
    for module in ("pathlib", "pathlib._local")
    for name, kind in (("PosixPath", PurePosixPath), ("WindowsPath", PureWindowsPath))
    for prefix in ("", "Pure")
}
BYTE_ORDERS = ("<", "|")


class Calls:
    """Answers the calls of one pickle with outlines. Raises FormatErrors.

    `records` says how many bytes the archive holds for each storage; `total_bytes` is the size of
    the file.
    """

    def __init__(self, records: Mapping[str, int], total_bytes: int) -> None:
        self.enums: set[str] = set()
        self._records = records
        self._bytes_left = EXPANSION * total_bytes + SLACK

    def find(self, path: str) -> Name:
        """Return the name, if it is on the list."""
        name = path.replace(NUMPY_1, NUMPY_2, 1) if path.startswith(NUMPY_1) else path
        if is_enum(path) or path in PATHS:
            self.enums.add(path)
        elif name not in NAMES:
            raise ForbiddenContent(path if path.isprintable() and len(path) < 200 else repr(path))
        return Name(name)

    def storage(self, reference: object) -> StorageOutline:
        """Return the storage that a tensor refers to, which must be in the archive, whole."""
        match reference:
            case ("storage", Name(path), str(key), str(), int(numel)) if path in STORAGES:
                dtype, item_bytes = STORAGES[path]
            case ("storage", Name(path), str(key), str(), int(numel)) if path == UNTYPED:
                dtype, item_bytes = "", 1
            case _:
                _refuse("a storage")
        held = self._records.get(key)
        if held is None or held != numel * item_bytes:
            raise DamagedFile(
                f"storage {key!r} is declared with {numel} values of {item_bytes} bytes; the file "
                f"holds {held if held is not None else 'none of it'}"
            )
        return StorageOutline(dtype, item_bytes, numel)

    def call(self, function: object, arguments: object) -> object:
        """Return the outline of what the function would return."""
        name = function.path if isinstance(function, Name) else "something that is no function"
        make = self._make_numpy if name.startswith("numpy.") else self._make_plain
        if (made := make(name, arguments)) is None:
            _refuse(name)
        return made

    def _make_plain(self, name: str, arguments: object) -> object:
        match name, arguments:
            case "collections.OrderedDict", ():
                return Ordered()
            case (
                "torch._utils._rebuild_tensor_v2",
                (StorageOutline() as storage, int(at), tuple(shape), tuple(stride), bool(), hooks),
            ) if _is_empty(hooks) and storage.dtype:
                return self._tensor(storage, at, shape, stride)
            case (
                "torch._utils._rebuild_tensor_v3",
                (
                    StorageOutline(dtype="") as storage, int(at), tuple(shape), tuple(stride),
                    bool(), hooks, Name(path),
                ),
            ) if _is_empty(hooks) and path in DTYPES:  # fmt: skip
                dtype, item_bytes = DTYPES[path]
                typed = StorageOutline(dtype, item_bytes, storage.numel // item_bytes)
                return self._tensor(typed, at, shape, stride)
            case (
                "torch._utils._rebuild_parameter",
                (TensorOutline() as tensor, bool(), hooks),
            ) if _is_empty(hooks):
                return tensor
            case "_codecs.encode", (str(text), "latin1"):
                return text.encode("latin1")
            case _, (str() | int() as value,) if is_enum(name):
                return value
            case _, tuple(parts) if name in PATHS and all(type(each) is str for each in parts):
                self._account(sum(map(len, parts)))
                return path_text(name, *parts)
        return None

    def _make_numpy(self, name: str, arguments: object) -> object:
        match name.removeprefix(NUMPY_2), arguments:
            case "numpy.dtype", (str(code), False | 0, True | 1):
                if code not in NUMPY_TYPES:
                    raise ForbiddenContent(f"the NumPy type {code!r}")
                return DtypeOutline(*NUMPY_TYPES[code])
            case "multiarray._reconstruct", (Name("numpy.ndarray"), (0,), b"b"):
                return ArrayOutline()
            case "multiarray.scalar", (DtypeOutline(dtype, item_bytes), bytes(content)):
                return ScalarOutline(dtype, item_bytes) if len(content) == item_bytes else None
        return None

    def build(self, made: object, state: object) -> None:
        """Take over a state into what was made."""
        match made, state:
            case Ordered(), {"_metadata": attributes, **others} if not others:
                made.attributes.append(attributes)
                return
            case DtypeOutline(), (3, str(order), None, None, None, -1, -1, 0) if (
                order in BYTE_ORDERS
            ):
                return
            case (
                ArrayOutline(),
                (1, tuple(shape), DtypeOutline(dtype, item_bytes), bool(), bytes(content)),
            ) if _is_shape(shape) and elements(shape) * item_bytes == len(content):
                self._account(len(content))
                made.dtype, made.shape, made.num_bytes = dtype, shape, len(content)
                return
        _refuse("a state")

    def _tensor(
        self,
        storage: StorageOutline,
        offset: int,
        shape: tuple[object, ...],
        stride: tuple[object, ...],
    ) -> TensorOutline:
        """Return a view of the storage that lies within it and is no larger than it."""
        if not _is_shape(shape) or not _is_shape(stride) or len(shape) != len(stride):
            _refuse("a tensor's shape")
        numel = elements(shape)
        last = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        if (
            not 0 <= offset <= storage.numel
            or (numel and last >= storage.numel)
            or numel > storage.numel
        ):
            raise FileTooLarge(
                f"a tensor of shape {shape} does not fit its storage of {storage.numel} values"
            )
        self._account(numel * storage.item_bytes)
        return TensorOutline(storage.dtype, shape, numel * storage.item_bytes)

    def _account(self, num_bytes: int) -> None:
        self._bytes_left -= num_bytes
        if self._bytes_left < 0:
            raise FileTooLarge("the file's tensors unfold to many times its size")


def path_text(name: str, *parts: str) -> str:
    """Return the text of a path of the class of this name."""
    return str(PATHS[name](*parts))


def is_enum(path: str) -> bool:
    is_class = path.startswith(ENUM_PACKAGE) and all(map(str.isidentifier, path.split(".")))
    return is_class or path == SIGNALS


def _is_empty(hooks: object) -> bool:
    return isinstance(hooks, Ordered) and not hooks.entries


def _is_shape(sizes: tuple[object, ...]) -> TypeGuard[tuple[int, ...]]:
    return len(sizes) <= 64 and all(type(size) is int and 0 <= size < 2**63 for size in sizes)


def _refuse(what: str) -> NoReturn:
    raise DamagedFile(f"{what} is asked for with arguments that it is never given")
