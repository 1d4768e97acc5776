"""Values that recipes log: what is allowed, what it becomes, and what an error says."""

import io
import json
import os
import wave

import numpy as np
import pytest
import torch
from PIL import Image as Pillow

import trainops
from trainops.media import Audio, ConfusionMatrix, Histogram, Image, MediaError, Table, log
from trainops.media.content import require_sound
from trainops.media.items import MediaItem
from trainops.media.limits import MAX_ITEM_BYTES, MAX_NUMBERS
from trainops.media.recorder import RECORDER

GREY = np.array([[0.0, 0.25], [0.5, 1.0]])
NAN = float("nan")


@pytest.fixture
def recorder():
    RECORDER.open({})
    yield RECORDER
    RECORDER.close()


def pixels(value):
    return np.asarray(Pillow.open(io.BytesIO(value.encode())))


def content(value):
    return json.loads(value.encode())


@pytest.mark.parametrize(
    "data",
    [
        GREY, GREY[:, :, None], GREY[None], GREY.tolist(), torch.tensor(GREY),
        torch.tensor(GREY)[None], torch.tensor(GREY, dtype=torch.bfloat16),
        torch.tensor(GREY, requires_grad=True),
    ],
)  # fmt: skip
def test_grey_images_of_every_layout(data):
    assert pixels(Image(data)).tolist() == [[0, 64], [128, 255]]


def test_colours_ranges_and_layouts():
    colours = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    assert (pixels(Image(colours)) == colours).all()
    assert (pixels(Image(torch.tensor(colours).permute(2, 0, 1))) == colours).all()
    ambiguous = np.zeros((3, 5, 3), np.uint8)
    assert pixels(Image(ambiguous)).shape == (3, 5, 3)
    assert pixels(Image(torch.tensor(ambiguous))).shape == (5, 3, 3)
    assert pixels(Image(np.zeros((2, 2, 4)))).shape == (2, 2, 4)
    assert pixels(Image([[0, 8, 16]], high=16)).tolist() == [[0, 128, 255]]
    assert pixels(Image([[True, False]])).tolist() == [[255, 0]]


def test_histograms_count_every_finite_value_once():
    values = [0.0, 0.1, 0.5, 1.0, NAN, float("inf")]
    assert content(Histogram(values, bins=2)) == {
        "edges": [0.0, 0.5, 1.0], "counts": [2, 2], "num_not_finite": 2,
    }  # fmt: skip
    assert content(Histogram(torch.ones(3, 3), [0, 1, 2]))["counts"] == [0, 9]
    assert content(Histogram([NAN], bins=1))["counts"] == [0]


def test_tables_keep_their_values():
    row = [1, 2**60, 0.5, NAN, None, True, "<b>", np.float32(2), torch.tensor(3)]
    assert content(Table("abcdefghi", [row]))["rows"] == [
        [1, str(2**60), 0.5, "nan", None, True, "<b>", 2.0, 3]
    ]


def test_confusion_matrices_by_counts_and_by_pairs():
    pairs = ConfusionMatrix(["a", "b"], truths=torch.tensor([0, 1, 1]), predictions=[0, 0, 1])
    assert content(pairs) == {"labels": ["a", "b"], "counts": [[1, 0], [1, 1]]}
    assert content(ConfusionMatrix(range(2), [[1.0, 0], [1, 1]]))["counts"] == [[1, 0], [1, 1]]


@pytest.mark.parametrize("samples", [[0, 0.5, -1], np.array([0, 16384, -32767], np.int16)])
def test_audio_is_a_wav_file(samples):
    samples = samples if isinstance(samples, np.ndarray) else [float(each) for each in samples]
    with wave.open(io.BytesIO(Audio(samples, 8000).encode())) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (8000, 1, 2)
        assert np.frombuffer(file.readframes(9), "<i2").tolist() == [0, 16384, -32767]
    assert Audio(np.zeros((2, 50)), 8000).samples.shape == (50, 2)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Image(np.zeros((2, 3, 4, 5))), "got shape 2 x 3 x 4 x 5; allowed: height x width"),
        (lambda: Image("x"), "got 'x'; allowed: numbers or booleans"),
        (lambda: Image([[1.5]]), "got values from 1.5 to 1.5; allowed: 0 to 1; set low and high"),
        (lambda: Image([[NAN]]), "got 1 values that are not finite"),
        (lambda: Image(np.zeros((0, 3))), "got 0 x 3 pixels; allowed: 1 to 4096"),
        (lambda: Image([[0.0]], low=2), "got low 2 and high 1"),
        (lambda: Image([[0.0]], caption="x" * 201), "got 201 characters; allowed: up to 200"),
        (lambda: Histogram([]), "got no values"),
        (lambda: Histogram([1], bins=0), "^Histogram: got 0 bins; allowed: 1 to 512$"),
        (lambda: Histogram([1], bins=[1, 1]), "ascending order"),
        (lambda: Histogram([[1], [1, 2]]), "rows of one length"),
        (lambda: Table([], []), "got 0 columns; allowed: 1 to 50"),
        (lambda: Table(["a"], [[1, 2]]), "row 1: got 2 cells; allowed: 1 cells"),
        (lambda: Table(["a"], [[object()]]), "got a object in a cell"),
        (lambda: Table(["a"], [[0]] * 1001), "got 1001 rows; allowed: up to 1000"),
        (lambda: ConfusionMatrix(["a"]), "got nothing; allowed: matrix, or truths and predictions"),
        (lambda: ConfusionMatrix(["a"], [[1]], truths=[0]), "got matrix, truths; allowed"),
        (lambda: ConfusionMatrix(["a"], [[1.5]]), "got 1.5; allowed: integers from 0"),
        (lambda: ConfusionMatrix(["a"], [[1, 2]]), "got shape 1 x 2; allowed: 1 x 1"),
        (lambda: ConfusionMatrix("ab", truths=[2], predictions=[0]), "got 2; allowed: 0 to 1"),
        (
            lambda: ConfusionMatrix("ab", truths=[0], predictions=[0, 1]),
            "1 truths and 2 predictions",
        ),
        (lambda: Audio([0.1], 10), "got 10; allowed: an integer from 1000"),
        (lambda: Audio([2.0], 8000), "got values from 2 to 2; allowed: -1 to 1$"),
        (lambda: Audio([1], 8000), "got samples of int64; allowed: floats from -1 to 1, or int16"),
        (lambda: log("", Image(GREY)), "allowed: 1 to 64 printable characters"),
        (lambda: log(3, 1.0), "got 3; allowed: 1 to 64 printable characters"),
        (lambda: log("x" * 65, 1.0), "allowed: 1 to 64 printable characters"),
        (lambda: log("system/speed", 1.0), "got a name that begins with system/"),
        (lambda: log("x", "3"), "got '3'; allowed: a number, Image, Histogram"),
        (lambda: log("x", None), "got None; allowed: a number, Image"),
        (lambda: log("x", {}), "got a dict; allowed: a number, Image"),
        (lambda: log("x", 1j), "got a complex; allowed: a number"),
        (lambda: log("x", np.array(["a"])), "allowed: numbers or booleans"),
        (lambda: log("x", torch.zeros(2, 3)), "got shape 2 x 3 of torch.float32; allowed: one el"),
        (lambda: log("x", np.zeros(0)), "got shape 0 of float64; allowed: one element"),
        (lambda: log("x", 10**400), "got an integer beyond 1.8e308"),
        (lambda: log("x", [Histogram([1.0])]), "got a list of Histogram; allowed: lists of Image"),
        (lambda: log("x", []), "got a list of 0; allowed: 1 to 64"),
    ],
)
def test_an_error_names_what_was_given_and_what_is_allowed(make, problem):
    with pytest.raises(MediaError, match=problem):
        make()


def test_too_many_bytes_are_refused(recorder):
    noise = np.random.default_rng(1).integers(0, 256, (1000, 1000, 3), np.uint8)
    with pytest.raises(MediaError, match=f"allowed: up to {MAX_ITEM_BYTES}"):
        log("noise", Image(noise))
    with pytest.raises(MediaError, match="in 20 items; allowed"):
        log("noise", [Image(noise[:400, :400]) for _ in range(20)])
    assert recorder.take() == ()


def test_the_last_value_of_a_name_counts_and_what_is_logged_is_sound(recorder):
    log("a", Image(GREY))
    log("b", Histogram(GREY))
    log("a", [Audio([0.0], 8000), Audio([0.5], 8000)])
    items = recorder.take()
    assert [(each.name, each.index, each.type) for each in items] == [
        ("a", 0, "audio"), ("a", 1, "audio"), ("b", 0, "histogram"),
    ]  # fmt: skip
    for each in items:
        require_sound(each)
    assert recorder.take() == ()


def test_a_call_before_the_first_step_and_one_in_a_loader_are_errors(recorder, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(MediaError, match="in a worker process of a loader"):
        log("a", Image(GREY))
    recorder.is_preparing = True
    with pytest.raises(MediaError, match="before the first step; allowed: in steps"):
        log("a", Image(GREY))


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (2, 2.0), (True, 1.0), (0.1, 0.1), (float("-inf"), float("-inf")), (np.float32(0.5), 0.5),
        (np.int64(3), 3.0), (np.array([[4]]), 4.0), (torch.tensor(0.25), 0.25),
        (torch.tensor([1.5], dtype=torch.bfloat16, requires_grad=True), 1.5),
    ],
)  # fmt: skip
def test_numbers_of_every_type(recorder, value, number):
    log("a", 7)
    log("a", value)
    assert recorder.take_numbers([]) == {"a": number}
    assert recorder.take_numbers([]) == {}


def test_a_name_that_the_recipe_records_itself_and_too_many_names_are_errors(recorder):
    log("val_loss", 1.0)
    with pytest.raises(MediaError, match=r"log\('val_loss'\): got a name of a metric that the re"):
        recorder.take_numbers(["epoch", "val_loss"])
    for index in range(MAX_NUMBERS):
        log(f"n{index}", index)
    log("n1", 3)
    with pytest.raises(MediaError, match="got 1001 names in one step; allowed: 1000"):
        log("one more", 1)


def test_outside_of_an_operation_nothing_happens():
    trainops.log("loss", 0.5)
    trainops.log("image", Image(GREY))
    assert trainops.log is log
    assert not RECORDER.numbers and not RECORDER.logged


def test_logging_draws_no_random_numbers(recorder):
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    log("a", Image(GREY))
    log("b", Histogram(torch.rand(3, generator=torch.Generator())))
    after = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert before[1] == after[1]


@pytest.mark.parametrize(
    ("kind", "raw", "problem"),
    [
        ("image", b"<svg>", "a PNG file"),
        ("audio", b"RIFF", "a WAV file"),
        ("table", b'{"columns":["a"],"rows":[[1,2]]}', "got a row of 2; allowed: 1 cells"),
        ("table", b'{"columns":["a"],"rows":[[{}]]}', "content: rows"),
        ("histogram", b'{"edges":[0,1],"counts":[],"num_not_finite":0}', "2 edges and 0 counts"),
        ("histogram", b'{"edges":[0,NaN],"counts":[1],"num_not_finite":0}', "content: edges"),
        ("confusion_matrix", b'{"labels":["a"],"counts":[[-1]]}', "content: counts"),
        ("html", b"<script>", "got 'html'; allowed: image"),
    ],
)
def test_what_no_recipe_could_have_logged_is_refused(kind, raw, problem):
    with pytest.raises(MediaError, match=problem):
        require_sound(MediaItem(1, False, "a", 0, kind, "", raw))
