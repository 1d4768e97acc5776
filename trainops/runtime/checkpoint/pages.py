"""Memory by the page, for what is large."""

import contextlib
import mmap

PAGE_BYTES = 4096


def private_pages(size_bytes: int, *, huge: bool) -> mmap.mmap:
    """Return zeroed memory of this process alone, which begins at a page.

    Huge pages are for what is written again and again. A machine has to gather them first, which
    can take longer than filling small ones.
    """
    pages = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if huge:
        with contextlib.suppress(OSError):  # where there are none, small ones do as well
            pages.madvise(mmap.MADV_HUGEPAGE)
    return pages
