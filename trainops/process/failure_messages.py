"""The message of an exception that ends an attempt."""

import sys

from trainops.process.reason_codes import is_gpu_out_of_memory

GPU_MEMORY = "GPU memory"  # begins the figures of an exhausted GPU


def failure_message(error: BaseException) -> str:
    """Return the type and the text of an exception, with the peak figures of an exhausted GPU."""
    message = f"{type(error).__name__}: {error}".removesuffix(": ")
    figures = _gpu_figures() if is_gpu_out_of_memory(error) else ""
    return f"{message}; {figures}" if figures else message


def _gpu_figures() -> str:
    torch = sys.modules.get("torch")  # this module is imported where torch is not
    if torch is None or not torch.cuda.is_initialized():
        return ""
    allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    free, total = torch.cuda.mem_get_info()
    return (
        f"{GPU_MEMORY}: peak {gigabytes(allocated)} allocated, {gigabytes(reserved)} reserved; "
        f"{gigabytes(free)} of {gigabytes(total)} free"
    )


def gigabytes(num_bytes: float) -> str:
    """Return bytes as gigabytes of 10^9, with three digits."""
    return f"{num_bytes / 1e9:.3g} GB"
