"""Isolation of members from other code in the process: threads and global random state.

A member is trained and scored on one thread, since sums in another order differ in their last bits, and with global
random numbers that depend only on its seed.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from joblib import parallel_config
from threadpoolctl import ThreadpoolController

# Threads of a process share the global random state and the limits on threads, so only one member uses them at a time.
_lock = threading.RLock()

# Failures of the machine, not of the samples. They must stop the work: if a member voted by its fixed rule instead, its
# ballots would differ between machines.
TOO_LARGE = 2**40  # bytes of one array, more than the memory of any machine
ENVIRONMENT = (MemoryError, OSError, ImportError)
# Of PyTorch on a CPU, of Python, and of PyTorch on a GPU: there, after one error, every later fit in the process fails.
SIGNS = ("can't allocate memory", "can't start new thread", "CUDA error", "CUBLAS_STATUS", "CUDNN_STATUS")


def seeds_of(random_state: int, member: int, n_seeds: int) -> list[np.random.SeedSequence]:
    """Return a seed sequence for each fit of a member, which depends only on the index of the member."""
    return [np.random.SeedSequence(random_state, spawn_key=(1, member, s)) for s in range(n_seeds)]


@lru_cache(maxsize=1)
def _libraries(_n_modules: int) -> ThreadpoolController:
    return ThreadpoolController()


_limits_lock = threading.Lock()
_limited: list[Any] = []  # libraries whose limits are in `_limits`
_limits = ExitStack()
_limiting: list[None] = []  # one per block that relies on the limits, in any thread


@contextmanager
def one_thread() -> Iterator[None]:
    """Let numerical libraries use one thread in the block.

    Most limits are those of the process. They are removed when the last block ends, since the first may end in the
    middle of a member that another thread of the caller trains. Detecting the loaded libraries is slow, so it is
    repeated only after imports.
    """
    libraries = _libraries(len(sys.modules))
    known = getattr(libraries, "lib_controllers", ())
    of_thread = [(library, library.num_threads) for library in known if getattr(library, "user_api", "") == "openmp"]
    with _limits_lock:
        limit = libraries.limit(limits=1)
        if libraries not in _limited:
            _limits.enter_context(limit)
            _limited.append(libraries)
        _limiting.append(None)
    try:
        yield
    finally:
        with _limits_lock:
            _limiting.pop()
            if not _limiting:
                _limits.close()
                _limited.clear()
            for library, n_threads in of_thread:
                library.set_num_threads(n_threads)


def _torch() -> Any:
    """Return PyTorch if it is already loaded, else None."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "get_rng_state") else None


def _seed_torch(torch: Any, seed: int) -> None:
    """Seed PyTorch on every device.

    For builds of PyTorch without an accelerator, this avoids `manual_seed`, which formats the whole call stack for a
    possible error message about CUDA and takes longer than fitting a small member.
    """
    accelerator = getattr(torch, "accelerator", None)  # since PyTorch 2.6
    if accelerator is not None and accelerator.current_accelerator() is None:
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def shared_libraries() -> int:
    """Return the number of loaded libraries that members share: those with a global random state, or with threads.

    A member may import another one, which is then neither seeded nor limited to one thread.
    """
    return 2 + (_torch() is not None) + len(_libraries(len(sys.modules)).lib_controllers)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Use one thread in the block, ignore floating-point errors, and restore the global random state afterwards."""
    with _lock:
        legacy, python, torch = np.random.get_state(), random.getstate(), _torch()  # noqa: NPY002
        on_host = None if torch is None else torch.get_rng_state()
        on_gpus = torch.cuda.get_rng_state_all() if torch is not None and torch.cuda.is_initialized() else None
    try:
        with one_thread(), np.errstate(all="ignore"):
            yield
    finally:
        with _lock:  # another thread of the caller may be training a member, which must keep its random numbers
            np.random.set_state(legacy)  # noqa: NPY002
            random.setstate(python)
            if torch is not None:
                torch.set_rng_state(on_host)
            if on_gpus is not None:
                torch.cuda.set_rng_state_all(on_gpus)


@contextmanager
def isolated_member(source: np.random.SeedSequence) -> Iterator[None]:
    """Run a member with exclusive use of the global random state, seeded from `source`, and one thread.

    Errors in floating-point arithmetic and warnings are handled as by default: processes may differ in these settings.
    `undisturbed` restores the random state after all members. An interruption is raised even if the estimator catches
    it.
    """
    state = source.generate_state(4)
    arithmetic = np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
    in_sequence = parallel_config(backend="sequential")  # for estimators with n_jobs=None
    with _lock, one_thread(), in_sequence, arithmetic, _warnings_only(), _interruptible():
        np.random.seed(state)  # noqa: NPY002
        random.seed(int(state[0]))
        torch = _torch()
        if torch is not None:
            _seed_torch(torch, int(state[1]) << 31 | int(state[2]) >> 1)
        yield


@contextmanager
def _interruptible() -> Iterator[None]:
    """Raise an interruption at the end of the block if the block caught it.

    At Ctrl-C, MLPClassifier and networks in skorch stop training and return as if they were fitted. Such a member would
    depend on the time of the interruption.
    """
    main = threading.current_thread() is threading.main_thread()  # the only one that is interrupted
    before = signal.getsignal(signal.SIGINT) if main else None
    if not callable(before):
        yield
        return
    raised: list[BaseException] = []

    def handle(*event: Any) -> None:
        try:
            before(*event)
        except BaseException as error:
            raised.append(error)
            raise

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is handle:
            signal.signal(signal.SIGINT, before)
        if raised:
            raise raised[0]


@contextmanager
def _warnings_only() -> Iterator[None]:
    """Let no warning become an error: the member would vote by its class shares, in a process with such a filter."""
    if all(action != "error" for action, *_ in warnings.filters):
        yield
        return
    with warnings.catch_warnings():
        filters: list[Any] = list(warnings.filters)
        warnings.resetwarnings()
        for action, message, category, module, line in reversed(filters):
            message, module = (getattr(pattern, "pattern", pattern) or "" for pattern in (message, module))
            warnings.filterwarnings("default" if action == "error" else action, message, category, module, line)
        yield


def is_environment(error: Exception) -> bool:
    """Return whether an error is due to the machine, not to the samples.

    An array that is too large for any machine is due to a sample, such as a category with the number 10**12.
    """
    if isinstance(error, MemoryError) and getattr(error, "_total_size", 0) >= TOO_LARGE:  # set by NumPy
        return False
    if isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS):
        return True
    return isinstance(error, ENVIRONMENT) or type(error).__name__ == "OutOfMemoryError"  # PyTorch's
