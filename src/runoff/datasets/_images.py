"""Decoding and resizing of image files with Pillow."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.errors import DatasetError, MissingExtraError

MOST_PIXELS = 2**26  # per image; a larger one may be a decompression bomb

# Grey images stay grey and colour images become RGB, independently of the other images.
MODES = {"1": "L", "L": "L", "RGB": "RGB", "P": "RGB", "CMYK": "RGB", "YCbCr": "RGB"}


def pillow() -> Any:
    """Import Pillow's Image module."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError(
            "reading image files needs Pillow. Install it with: pip install 'runoff[datasets]'"
        ) from None
    return Image


def decoded(source: Path | bytes, name: str, formats: tuple[str, ...]) -> Any:
    """Decode an image in one of these formats, as 8-bit grey or RGB."""
    Image = pillow()
    try:
        with Image.open(BytesIO(source) if isinstance(source, bytes) else source, formats=formats) as image:
            if image.width * image.height > MOST_PIXELS:
                got = f"{image.width} x {image.height}"
                raise DatasetError(f"{name} must have at most {MOST_PIXELS:,} pixels, got {got}")
            if image.mode not in MODES:
                raise DatasetError(f"{name} must be an 8-bit grey or RGB image, got mode {image.mode}: convert it")
            image.load()
            image.info.pop("transparency", None)  # a colour marked as transparent is still a colour
            return image.convert(MODES[image.mode])
    except DatasetError:
        raise
    except Exception as error:  # a hostile image can raise anything
        raise DatasetError(
            f"{name} cannot be read as an image ({type(error).__name__}): replace or remove it"
        ) from None


def resized(image: Any, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Return the pixels (height, width, ...) after bilinear resizing to size = (height, width)."""
    return np.asarray(image.resize(size[::-1], pillow().Resampling.BILINEAR))
