"""The output of recipes in a check is bounded."""

import os

from trainops.checking.output import KEPT_BYTES, Output


def printed(*texts):
    output = Output()
    output.start()
    for text in texts:
        os.write(output.writing, text.encode())
    os.close(output.writing)
    return output.text()


def test_a_short_output_is_kept_as_it_is():
    assert printed("first\n", "last\n") == "first\nlast"
    assert printed() == ""
    whole = "a" * KEPT_BYTES + "b" * KEPT_BYTES
    assert printed(whole) == whole


def test_of_a_long_output_the_beginning_and_the_end_are_kept():
    text = printed("first\n", *["x" * 2**20] * 20, "\nlast\n")
    lines = text.split("\n")
    assert (lines[0], lines[-1]) == ("first", "last")
    num_bytes = len("first\n\nlast\n") + 20 * 2**20
    assert lines[2] == f"[{num_bytes - 2 * KEPT_BYTES} bytes are left out]"
    assert len(text) < 2 * KEPT_BYTES + 100
