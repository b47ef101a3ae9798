"""Image files, decoded by Pillow."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.errors import DatasetError, MissingExtraError

MOST_PIXELS = 2**26  # of one image; beyond it, decoding is what an attacker wants

# Grey stays grey and colours become RGB, whatever the other images are.
MODES = {"1": "L", "L": "L", "RGB": "RGB", "P": "RGB", "CMYK": "RGB", "YCbCr": "RGB"}


def pillow() -> Any:
    """Pillow's Image module."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError(
            "reading image files needs Pillow. Install it with: pip install runoff[datasets]"
        ) from None
    return Image


def decoded(source: Path | bytes, name: str, formats: tuple[str, ...]) -> Any:
    """An image in one of these formats, as grey or RGB of 8 bits."""
    Image = pillow()
    try:
        with Image.open(BytesIO(source) if isinstance(source, bytes) else source, formats=formats) as image:
            if image.width * image.height > MOST_PIXELS:
                raise DatasetError(f"{name} must have at most {MOST_PIXELS} pixels, got {image.width} x {image.height}")
            if image.mode not in MODES:
                raise DatasetError(f"{name} must be a grey or RGB image of 8 bits, got mode {image.mode}: convert it")
            image.load()
            image.info.pop("transparency", None)  # colours that count as transparent are colours all the same
            return image.convert(MODES[image.mode])
    except DatasetError:
        raise
    except Exception as error:  # whatever a hostile image may bring about
        raise DatasetError(
            f"{name} cannot be read as an image ({type(error).__name__}): replace or remove it"
        ) from None


def resized(image: Any, size: tuple[int, int]) -> NDArray[np.uint8]:
    """The pixels (height, width, ...) after bilinear resizing to size = (height, width)."""
    return np.asarray(image.resize(size[::-1], pillow().Resampling.BILINEAR))
