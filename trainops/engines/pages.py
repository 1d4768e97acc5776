"""Memory by the page, for what is large: huge pages where the machine has them."""

import contextlib
import mmap

PAGE_BYTES = 4096


def private_pages(size_bytes: int) -> mmap.mmap:
    """Return zeroed memory of this process alone, which begins at a page."""
    pages = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # where there are none, small ones do as well
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages
