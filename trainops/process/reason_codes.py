"""The reason codes of exceptions that have one."""

from trainops.datasets.errors import DirectoryAway
from trainops.media.errors import MediaError
from trainops.runtime import errors

CODES: dict[type[BaseException], str] = {
    errors.NonFiniteLoss: "NON_FINITE_LOSS",
    errors.ExplodingNorm: "EXPLODING_NORM",
    errors.InputError: "INPUT_ERROR",
    errors.ConfigError: "INPUT_ERROR",
    MediaError: "INPUT_ERROR",
    errors.UnfreezableState: "INPUT_ERROR",
    errors.NotExact: "NOT_EXACT",
    DirectoryAway: "DATASET_AWAY",
    errors.LedgerMismatch: "PRIVACY_LEDGER_MISMATCH",
    MemoryError: "OUT_OF_MEMORY",
    errors.AllCheckpointsCorrupted: "CHECKPOINT_CORRUPTED",
    errors.SaveFailed: "STORAGE_ERROR",
    errors.StorageAway: "STORAGE_ERROR",
}
NO_MEMORY = "DefaultCPUAllocator: can't allocate memory"  # torch raises a RuntimeError


def is_gpu_out_of_memory(error: BaseException) -> bool:
    return type(error).__name__ == "OutOfMemoryError"  # torch's, which is not imported here


def reason_code(error: BaseException) -> str:
    """Return the reason of errors that have one; empty for all others."""
    if isinstance(error, errors.RankFailed | errors.RankLost | errors.LoaderLost):
        return error.code
    if is_gpu_out_of_memory(error) or NO_MEMORY in str(error):
        return "OUT_OF_MEMORY"
    return next((code for each, code in CODES.items() if isinstance(error, each)), "")
