"""Images and masks of every mode of Pillow: masks keep their values, images become 8 bits."""

import numpy as np
import pytest
import torch
from PIL import Image

from tests.directories import making
from tests.directories.making import pixels
from trainops.datasets.errors import DataError
from trainops.learning.readers import ImageFolder, ImagePairs

CLASSES = np.arange(64, dtype=np.uint8).reshape(8, 8) % 21
WIDE = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1040  # up to 65520
COLOURS = [channel for n in range(256) for channel in (n * 37 % 256, n * 91 % 256, 255 - n)]


def with_palette(values):
    image = Image.fromarray(values)
    image.putpalette(COLOURS)
    return image


MASKS = {  # how it is written, its values, and their type
    "L": (Image.fromarray(CLASSES), CLASSES, torch.uint8),
    "P": (with_palette(CLASSES), CLASSES, torch.uint8),
    "1": (Image.fromarray(CLASSES > 9), (CLASSES > 9).astype(np.uint8), torch.uint8),
    "I;16": (Image.fromarray(WIDE), WIDE, torch.int32),
    "LA": (Image.fromarray(np.stack([CLASSES, WIDE.astype(np.uint8)], -1)), CLASSES, torch.uint8),
    "RGB": (Image.fromarray(np.stack([CLASSES] * 3, -1)), CLASSES, torch.uint8),
}
OTHER_MASKS = {  # of formats other than PNG
    ("P", "gif"): MASKS["P"],
    ("P", "tif"): MASKS["P"],
    ("P", "bmp"): MASKS["P"],
    ("1", "tif"): MASKS["1"],
    ("I;16", "tif"): MASKS["I;16"],
    ("I;16B", "tif"): (Image.fromarray(WIDE.astype(">u2")), WIDE, torch.int32),
    ("I", "tif"): (Image.fromarray(WIDE.astype(np.int32) * -9), WIDE.astype(np.int32) * -9, None),
}
ALL_MASKS = {(mode, "png"): each for mode, each in MASKS.items()} | OTHER_MASKS
COLOURED = {
    "RGB": Image.fromarray(pixels(0)),
    "RGBA": Image.fromarray(np.concatenate([pixels(0), pixels(1)[..., :1]], -1)),
    "F": Image.fromarray(CLASSES.astype(np.float32)),
    "CMYK": Image.fromarray(pixels(0)).convert("CMYK"),
}


@pytest.fixture
def pair(data):
    """Write an image and this mask; return the dataset of the pair."""

    def pair(mask, suffix="png", **options):
        making.save_image(data / "images" / "0.png", 0)
        (data / "masks").mkdir()
        mask.save(data / "masks" / f"0.{suffix}")
        return ImagePairs(data, **options)

    return pair


@pytest.mark.parametrize(("mode", "suffix"), ALL_MASKS)
def test_a_mask_has_the_values_of_its_file(pair, data, mode, suffix):
    image, values, dtype = ALL_MASKS[mode, suffix]
    _, mask = pair(image, suffix)[0]
    with Image.open(data / "masks" / f"0.{suffix}") as written:
        assert written.mode == mode
        if mode not in ("LA", "RGB"):
            assert np.array_equal(mask.numpy(), np.asarray(written))  # as Pillow has them
    assert mask.dtype == (dtype or torch.int32) and np.array_equal(mask.numpy(), values)


@pytest.mark.parametrize("mode", MASKS)
def test_a_resized_mask_has_no_other_values(pair, mode):
    image, values, dtype = MASKS[mode]
    _, mask = pair(image, size=(16, 4))[0]
    assert mask.shape == (16, 4) and mask.dtype == dtype
    assert set(mask.flatten().tolist()) <= set(values.flatten().tolist())
    expected = values[np.repeat(np.arange(8), 2)][:, [1, 3, 5, 7]]  # the nearest
    assert np.array_equal(mask.numpy(), expected)


@pytest.mark.parametrize("mode", COLOURED)
def test_a_mask_whose_values_are_no_classes_is_refused_by_name(pair, mode):
    dataset = pair(COLOURED[mode], "tif")
    with pytest.raises(DataError, match=rf"masks/0.tif has the mode {mode}; allowed: masks in L"):
        dataset[0]


IMAGES = {  # written as PNG, and what it is in RGB
    "P": (with_palette(CLASSES), np.array(COLOURS, np.uint8).reshape(-1, 3)[CLASSES]),
    "1": (MASKS["1"][0], np.stack([(CLASSES > 9) * np.uint8(255)] * 3, -1)),
    "LA": (MASKS["LA"][0], np.stack([CLASSES] * 3, -1)),
    "RGBA": (COLOURED["RGBA"], pixels(0)),
}


@pytest.mark.parametrize("transparency", [None, 3, bytes([0, 128])])
@pytest.mark.parametrize("mode", IMAGES)
def test_an_image_of_another_mode_becomes_rgb_without_its_transparency(data, mode, transparency):
    image, expected = IMAGES[mode]
    (data / "class").mkdir()
    is_given = mode == "P" and transparency is not None
    image.save(data / "class" / "0.png", **({"transparency": transparency} if is_given else {}))
    found, _ = ImageFolder(data)[0]
    assert np.array_equal(found.permute(1, 2, 0).numpy(), expected)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize(
    "image",
    [MASKS["I;16"][0], Image.fromarray(WIDE.astype(np.int32)), COLOURED["F"]],
    ids=["I;16", "I", "F"],
)
def test_an_image_of_more_than_8_bits_is_refused_and_not_clipped(data, image, mode):
    (data / "class").mkdir()
    image.save(data / "class" / "0.tif")
    allowed = "allowed: images of 8 bits per channel"
    with pytest.raises(DataError, match=rf"class/0.tif has the mode {image.mode}; {allowed}"):
        ImageFolder(data, mode=mode)[0]


def test_cmyk_becomes_rgb_as_pillow_converts_it(data):
    (data / "class").mkdir()
    COLOURED["CMYK"].save(data / "class" / "0.tif")
    found, _ = ImageFolder(data)[0]
    assert np.array_equal(found.permute(1, 2, 0).numpy(), pixels(0))
