"""Encoders: fixed functions from inputs to features, on which members are trained.

An encoder does not depend on the training samples, so an edit changes the features of the edited sample only, and the
guarantee is that of the members. But anyone who could change the encoder, or the data that it was trained on, could
change all features at once. So an encoder must be trusted, and is identified by the SHA-256 of its weights.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from numpy.typing import NDArray

from runoff import hashing
from runoff._io.files import open_array, sha256_of, write_array
from runoff._io.progress import with_progress
from runoff.errors import InputError, StorageError

NOT_SAVED = (
    "a classifier with an encoder cannot be saved, because the encoder would be lost: fit one without it on "
    "encoder.features(X), and save that"
)
log = logging.getLogger("runoff")
Digests = NDArray[np.void]  # a SHA-256 per sample
Rows = NDArray[np.intp]
WIDTH = 32  # bytes of a digest
SAVE_SECONDS = 20.0  # maximum work that an interruption loses


@dataclass(frozen=True, eq=False)
class Encoder:
    """A fixed function from inputs to features, with its identity.

    The features of an input must depend on nothing but the input. `function` is called with blocks of exactly `batch`
    inputs (padded if there are fewer) and returns `batch` rows of numbers. With a batch of 1, no other input can have
    an effect. Otherwise the content of an input determines its place in a block, since arithmetic can depend on it, and
    the first block is also computed with other inputs in the other places: it is an error if bits differ.

    Parameters
    ----------
    function : maps an array of inputs in float64 (batch, ...), or a list of `batch` texts, to features (batch, d)
    name : its name in reports
    sha256 : the SHA-256 of its weights or other content; None if unknown
    batch : inputs per call
    workers : calls at a time
    settings : facts that its bits depend on besides the weights, such as precision and device
    check : a function that is called with all inputs and raises InputError if they are not of the expected kind
    cache : a directory for computed features, or None; it requires `sha256`

    """

    function: Callable[[Any], Any] = field(repr=False)
    name: str
    sha256: str | None = None
    batch: int = 1
    workers: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    check: Callable[[Any], None] | None = field(default=None, repr=False)
    cache: Path | None = None
    _unique: str = field(default_factory=lambda: secrets.token_hex(16), init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("batch", "workers"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.cache is not None and not isinstance(self.cache, Path):
            object.__setattr__(self, "cache", Path(self.cache))
        if self.cache is not None and self.sha256 is None:
            raise InputError("an encoder whose features are cached needs sha256=, to tell it from others")

    @property
    def identity(self) -> str:
        """A digest of everything that features depend on besides the input.

        Without a SHA-256 it is unique to this object, since different functions can have the same name.
        """
        parts = [self.name, self.sha256 or self._unique, self.batch, dict(self.settings)]
        parts += ["places"] if self.batch > 1 else []  # earlier releases filled blocks in order
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

    def described(self) -> dict[str, Any]:
        """Return name and SHA-256 as recorded in manifests."""
        return {"name": self.name, "sha256": self.sha256}

    def features(self, X: Any, *, show: bool | None = None) -> NDArray[np.float32]:
        """Return the features of inputs, (n, features); inputs with the same content have the same features.

        If any feature of an input is not finite, all of its features are replaced by zeros. With a cache, features are
        stored while they are computed, so that an interrupted call resumes.
        """
        digests = content_digests(X)
        if self.check is not None:
            self.check(X)
        if not len(digests):
            raise InputError("X must hold at least one input, got none")
        # Sorted by content, so that the order of X has no effect.
        distinct, first, inverse = np.unique(digests, return_index=True, return_inverse=True)
        cache = FeatureCache(None if self.cache is None else self.cache / self.identity)
        where, known = cache.find(distinct)
        missing = np.flatnonzero(where < 0)
        missing = missing[np.lexsort(_blocks_and_places(distinct[missing], self.batch)[::-1])]
        computed = list(self._computed(X, first[missing], distinct[missing], cache, len(distinct) - len(missing), show))
        parts = [*computed, *([known] if len(known) else [])]
        values = np.empty((len(distinct), _width(parts)), np.float32)
        values[missing] = np.concatenate(computed) if computed else 0
        values[where >= 0] = known[where[where >= 0]] if len(known) else 0
        features: NDArray[np.float32] = values[inverse.reshape(-1)]
        return features

    def uncached(self, X: Any) -> NDArray[np.float32]:
        """Return the features of at most `batch` inputs without using the cache."""
        return self._block(X, np.arange(len(X)), np.arange(len(X)))

    def _computed(
        self, X: Any, rows: Rows, digests: Digests, cache: FeatureCache, done: int, show: bool | None
    ) -> Iterator[NDArray[np.float32]]:
        """Yield the features of these rows of X, block by block, and store them in the cache periodically."""
        which, places = _blocks_and_places(digests, self.batch)
        ends = np.flatnonzero(np.diff(which)) + 1  # the digests are in the order of blocks
        blocks = list(zip(np.split(rows, ends), np.split(places, ends), strict=True)) if len(rows) else []
        if blocks:
            self._check(X, *blocks[0])
        waiting: list[NDArray[np.float32]] = []
        stored, saved = 0, time.monotonic()
        try:
            found = self._blocks(X, blocks)
            for part in with_progress(found, "computing features", len(rows), done=done, show=show, unit="inputs"):
                _width([*waiting[:1], part])
                waiting.append(part)
                yield part
                if time.monotonic() - saved > SAVE_SECONDS:
                    stored += cache.put(digests[stored:], waiting)
                    waiting, saved = [], time.monotonic()
        finally:
            cache.put(digests[stored:], waiting)

    def _blocks(self, X: Any, blocks: Sequence[tuple[Rows, Rows]]) -> Iterator[NDArray[np.float32]]:
        """Yield the features of blocks, in order; a block is rows of X and their places."""
        if self.workers == 1:
            yield from (self._block(X, *block) for block in blocks)
            return
        pool = ThreadPoolExecutor(self.workers)
        try:
            yield from pool.map(lambda block: self._block(X, *block), blocks)
        finally:
            pool.shutdown(cancel_futures=True)  # stops the remaining blocks after an interruption

    def _block(self, X: Any, rows: Rows, places: Rows) -> NDArray[np.float32]:
        """Return the features of inputs in these places of a block, whose other places are filled with the last one."""
        filled = np.repeat(rows[-1:], self.batch)
        filled[places] = rows
        return self._called(_taken(X, filled))[places]

    def _called(self, inputs: Any) -> NDArray[np.float32]:
        values = np.asarray(self.function(inputs))
        if values.ndim != 2 or len(values) != self.batch or values.dtype.kind not in "biuf":
            raise InputError(
                f"the encoder must return an array ({self.batch}, features) of numbers for {self.batch} input(s), got "
                f"shape {values.shape} and dtype {values.dtype}"
            )
        with np.errstate(over="ignore"):
            features = values.astype(np.float32)
        features[~np.isfinite(features).all(axis=1)] = 0
        return features

    def _check(self, X: Any, rows: Rows, places: Rows) -> None:
        """Raise an error if the results for an input differ between calls, or depend on other inputs of the block."""
        filled = np.resize(rows, self.batch)
        filled[places] = rows
        odd, others = np.arange(self.batch) % 2 == 1, np.roll(filled, 1)
        fillings = (np.where(odd, others, filled), np.where(odd, filled, others))
        first = self._called(_taken(X, filled)).view(np.uint32)
        calls = map(lambda filling: self._called(_taken(X, filling)).view(np.uint32), fillings)  # noqa: C417
        if self.workers > 1:  # in a thread where libraries may use more threads
            with ThreadPoolExecutor(1) as pool:
                again = pool.submit(list, calls).result()
        else:
            again = list(calls)
        kept = [filling == filled for filling in fillings]
        if not all(np.array_equal(first[k], found[k]) for k, found in zip(kept, again, strict=True)):
            fix = "the other inputs of a block, too: use batch=1" if self.batch > 1 else "something else, too"
            raise InputError(f"the encoder's features must depend on the input alone, but they depend on {fix}")


def get(encoder: Any, device: Any = None) -> Encoder:
    """Return the encoder for a name, a path or a function.

    An `Encoder` is returned unchanged, but without a SHA-256 it gets a new identity: its function may have changed.
    """
    if isinstance(encoder, Encoder):
        return encoder if encoder.sha256 else replace(encoder)
    if isinstance(encoder, (str, Path)):
        from runoff.torch.encoders import named

        return named(encoder, device=device)
    if callable(encoder) and not isinstance(encoder, type):
        return Encoder(encoder, getattr(encoder, "__qualname__", type(encoder).__qualname__))
    raise InputError(
        "encoder must be a name, the path of a safetensors file, a function from inputs to features (such as the "
        f"transform of a fitted transformer), or an Encoder, got {type(encoder).__name__}"
    )


class FeatureCache:
    """A cache of features by content: files of rows, each with the digest of a sample and its features.

    The name of a file is its SHA-256, and damaged files are ignored. Anyone who can write to the directory can change
    predictions, but no content of a file is executed. Without a directory, nothing is stored.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def find(self, digests: Digests) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the index of each sample in the stored features, or -1, and the stored features."""
        rows = self._rows()
        if not len(rows):
            return np.full(len(digests), -1), np.empty((0, 0), np.float32)
        stored, first = np.unique(_as_digests(rows[:, :WIDTH]), return_index=True)
        at = np.searchsorted(stored, digests).clip(0, len(stored) - 1)
        found = stored[at] == digests
        used = first[at[found]]
        where = np.full(len(digests), -1)
        where[found] = np.arange(len(used))
        return where, np.ascontiguousarray(rows[used, WIDTH:]).view("<f4").astype(np.float32, copy=False)

    def _rows(self) -> NDArray[np.uint8]:
        parts: list[NDArray[np.uint8]] = []
        for file in sorted(self.path.glob("*.npy")) if self.path is not None and self.path.is_dir() else ():
            try:
                if sha256_of(file) != file.stem:
                    raise InputError("altered or damaged")
                part = open_array(file)
                if part.dtype != np.uint8 or part.ndim != 2 or part.shape[1] <= WIDTH or part.shape[1] % 4:
                    raise InputError("not features")
                if parts and part.shape[1] != parts[0].shape[1]:
                    raise InputError("of another width")
            except (InputError, OSError) as error:
                log.warning("%s is ignored: %s", file, error)
                continue
            parts.append(part)
        return np.concatenate(parts) if parts else np.empty((0, WIDTH), np.uint8)

    def put(self, digests: Digests, parts: Sequence[NDArray[np.float32]]) -> int:
        """Store the features of the first samples, and return their number."""
        if not parts:
            return 0
        features = np.concatenate(parts)
        if self.path is not None:
            names = np.frombuffer(digests[: len(features)].tobytes(), np.uint8).reshape(-1, WIDTH)
            rows = np.concatenate([names, features.astype("<f4").view(np.uint8)], axis=1)
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                written = self.path / f"new-{os.getpid()}-{time.monotonic_ns()}.part"
                write_array(written, rows)
                written.rename(self.path / f"{sha256_of(written)}.npy")
            except OSError as error:
                log.warning("features could not be cached in %s: %s", self.path, error.strerror)
        return len(features)


def cache_directory() -> Path:
    """Return the directory of cached features, RUNOFF_CACHE or the user's cache directory."""
    chosen = os.environ.get("RUNOFF_CACHE")
    try:
        root = Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("runoff", appauthor=False)
    except RuntimeError:
        raise StorageError("there is no home directory for cached features: set RUNOFF_CACHE to a directory") from None
    return root


def content_digests(X: Any) -> Digests:
    """Return a SHA-256 of each input, independent of the type of numbers and of the Unicode form of texts."""
    if _is_numbers(X):
        found = [hashlib.sha256(row).digest() for row in hashing.number_rows(X)]
    elif isinstance(X, (list, tuple, np.ndarray)) and all(isinstance(x, str) for x in X):
        found = [hashlib.sha256(hashing.cell(x)).digest() for x in X]
    else:
        raise InputError(f"X must be an array of numbers or a list of texts for an encoder, got {type(X).__name__}")
    return _as_digests(np.frombuffer(b"".join(found), np.uint8).reshape(-1, WIDTH))


def _is_numbers(X: Any) -> bool:
    return isinstance(X, np.ndarray) and X.dtype.kind in "biuf" and X.ndim > 0


def _width(parts: Sequence[NDArray[np.float32]]) -> int:
    """Return the number of features, which must be the same in all parts."""
    widths = {int(part.shape[1]) for part in parts}
    if len(widths) != 1:
        raise InputError(f"the encoder must return as many features for all inputs, got {sorted(widths)}")
    return widths.pop()


def _blocks_and_places(digests: Digests, batch: int) -> tuple[Rows, Rows]:
    """Return the number of the block of each input, and its place there.

    Only the content of an input determines its place: in blocks filled in order, one more input would move all others
    that follow, and the last bits of a matrix product can differ between its rows.
    """
    words = np.frombuffer(digests.tobytes(), "<u8").reshape(-1, WIDTH // 8)
    places = (words[:, 0] % np.uint64(batch)).astype(np.intp)
    order = np.argsort(places, kind="stable")
    blocks = np.empty(len(places), np.intp)
    blocks[order] = np.arange(len(places)) - np.searchsorted(places[order], places[order])
    return blocks, places


def _as_digests(rows: NDArray[np.uint8]) -> Digests:
    return np.ascontiguousarray(rows).view(f"V{WIDTH}").reshape(-1)


def _taken(X: Any, rows: Rows) -> Any:
    """Return inputs in a canonical form, so that an edit that changes the type of X does not change features."""
    return hashing.plain_floats(X[rows]) if _is_numbers(X) else [hashing.plain_text(X[i]) for i in rows]
