"""Appearance of an input in the report: a small picture, its features, or its text."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from runoff.report.source import Source

SIDE = 32  # pixels, at most
FEATURES = 24  # displayed per input, at most
CHARACTERS = 600  # of a text, at most


def appearance(source: Source, i: int) -> dict[str, Any]:
    """Return one of `picture` (a data URI), `features` (pairs) and `text`, or nothing."""
    if source.pictures is not None:
        return {"picture": data_uri(source.pictures[i])}
    data = source.features
    if data is None:
        return {}
    if hasattr(data, "columns"):
        row = data.iloc[i]
        names, values = [str(name) for name in data.columns], row.tolist()
    else:
        row = data.iloc[i] if hasattr(data, "iloc") else data[i]
        if isinstance(row, str):
            return {"text": _short(row)}
        if hasattr(row, "toarray"):  # a row of a sparse matrix
            row = row.toarray()
        values = np.asarray(row).reshape(-1).tolist()
        names = [f"feature {j}" for j in range(len(values))]
    pairs = [[name, _cell(value)] for name, value in zip(names, values, strict=True)]
    left = len(pairs) - FEATURES
    return {"features": pairs[:FEATURES] + ([["more", f"{left} not displayed"]] if left > 0 else [])}


def _cell(value: Any) -> str:
    """Return a value of a table as text."""
    if isinstance(value, str):
        return _short(value)
    if str(value) in ("None", "nan", "NaT", "<NA>"):
        return "missing"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _short(text: str) -> str:
    return text if len(text) <= CHARACTERS else f"{text[: CHARACTERS - 3]}..."


def data_uri(image: NDArray[np.uint8]) -> str:
    """Return an image as a PNG data URI of at most 32 pixels per side."""
    return f"data:image/png;base64,{base64.b64encode(png(_small(image))).decode()}"


def _small(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Downscale an image to at most `SIDE` pixels per side by averaging blocks."""
    step = -(-max(image.shape[:2]) // SIDE)
    if step == 1:
        return image
    rows, columns = np.arange(0, image.shape[0], step), np.arange(0, image.shape[1], step)
    sums = np.add.reduceat(np.add.reduceat(image.astype(np.int64), rows, axis=0), columns, axis=1)
    heights, widths = np.diff([*rows, image.shape[0]]), np.diff([*columns, image.shape[1]])
    counts = np.multiply.outer(heights, widths).reshape(len(rows), len(columns), *[1] * (image.ndim - 2))
    return (sums // counts).astype(np.uint8)


def png(image: NDArray[np.uint8]) -> bytes:
    """Encode an image (h, w), (h, w, 1), (h, w, 3) or (h, w, 4) as a PNG file."""
    pixels = image[..., None] if image.ndim == 2 else image
    height, width, channels = pixels.shape
    if channels not in (1, 3, 4):
        pixels, channels = pixels[..., :1], 1
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each row starts with its filter type, 0
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def stretched(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Brighten images whose brightest pixel is dim, such as digits with 16 shades."""
    most = int(images.max())
    if most in (0, 255) or most > 64:
        return images
    return (images.astype(np.uint16) * 255 // most).astype(np.uint8)
