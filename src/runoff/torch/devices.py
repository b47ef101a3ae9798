"""Devices: where members are trained, and the settings under which the same input gives the same bits."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from runoff.errors import DeviceError
from runoff.isolation import one_thread
from runoff.recipes import Recipe

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
FIXED = (":4096:8", ":16:8")  # with which cuBLAS gives the same bits on several streams

# cuBLAS reads this when it starts, so it must be there before anything runs on a GPU.
_late = torch.cuda.is_initialized() and os.environ.get(WORKSPACE) not in FIXED  # type: ignore[no-untyped-call]
os.environ.setdefault(WORKSPACE, FIXED[0])


def find(device: str | torch.device | None) -> torch.device:
    """The device of that name, or the first GPU, or the CPU; refused if it cannot repeat itself bit for bit."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
    except RuntimeError:
        raise DeviceError(f"device must be 'cpu', 'cuda' or 'cuda:N', got {device!r}") from None
    if found.type == "cpu":
        return torch.device("cpu")
    if found.type != "cuda":
        raise DeviceError(
            f"device must be a CPU or a CUDA GPU, got {found.type!r}: its kernels promise no fixed order of sums, so "
            "two trainings of one member could differ"
        )
    if not torch.cuda.is_available():
        raise DeviceError(f"device {str(device)!r} is not there: PyTorch sees no CUDA GPU; use device='cpu'")
    if found.index is not None and found.index >= torch.cuda.device_count():
        raise DeviceError(f"device {str(device)!r} is not there: PyTorch sees {torch.cuda.device_count()} GPUs")
    if _late or os.environ[WORKSPACE] not in FIXED:
        raise DeviceError(
            f"CUDA was started with {WORKSPACE}={'' if _late else os.environ[WORKSPACE]!r}, with which sums may differ "
            f"from run to run: import runoff.torch before using the GPU, or set {WORKSPACE}={FIXED[0]}"
        )
    return torch.device("cuda", torch.cuda.current_device() if found.index is None else found.index)


def describe(device: torch.device) -> str:
    """What a checkpoint remembers of where it was made: other hardware gives other last bits."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    limits = [f"{name}={os.environ[name]}" for name in CPU_LIMITS if name in os.environ]
    return " ".join(["cpu", _model(), torch.backends.cpu.get_cpu_capability(), *limits])


# With these, libraries choose other instructions, which give other last bits.
CPU_LIMITS = ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")


def _model() -> str:
    """Which processor it is, as the system names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        kept = [line.split(":", 1)[1].strip() for line in lines if line.startswith(("model name", "flags", "Features"))]
        name, flags = kept[0], kept[1] if len(kept) > 1 else ""
        return f"{name} {hashlib.sha256(flags.encode()).hexdigest()[:16]}"
    except (OSError, IndexError):
        return f"{platform.machine()} {platform.processor()}"


def precision_of(recipe: Recipe, device: torch.device) -> str:
    """What "auto" means here."""
    if recipe.precision != "auto":
        return recipe.precision
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"


COMPILER, COMPILER_MODULE = "TORCHINDUCTOR_DETERMINISTIC", "torch._inductor.config"
_lock = threading.Lock()
_live: list[str] = []  # the precisions of those that rely on the settings now
_undo = ExitStack()


@contextmanager
def repeatable(precision: str, device: torch.device) -> Iterator[None]:  # noqa: ARG001
    """Deterministic kernels chosen by shape alone, and one thread a network on the CPU.

    These settings are global, so they stay while anybody relies on them, and go back when the last one is done.
    """
    with _lock:
        if _live and ("tf32" in _live) != (precision == "tf32"):
            raise DeviceError(f"networks in {precision} cannot be trained while others in {_live[0]} are: finish those")
        if not _live:
            _undo.enter_context(_settings(precision))
        _live.append(precision)
    try:
        yield
    finally:
        with _lock:
            _live.remove(precision)
            if not _live:
                _undo.close()


@contextmanager
def _settings(precision: str) -> Iterator[None]:
    cudnn, matmul, mkldnn = torch.backends.cudnn, torch.backends.cuda.matmul, torch.backends.mkldnn
    before = (
        torch.get_deterministic_debug_mode(),
        torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
        cudnn.deterministic,
        cudnn.benchmark,
        cudnn.allow_tf32,
        matmul.allow_tf32,
        matmul.allow_bf16_reduced_precision_reduction,
        torch.get_num_threads(),
        mkldnn.enabled,
    )
    try:
        torch.set_deterministic_debug_mode("error")
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        cudnn.deterministic, cudnn.benchmark = True, False  # benchmark would choose kernels by the clock
        cudnn.allow_tf32 = matmul.allow_tf32 = precision == "tf32"
        matmul.allow_bf16_reduced_precision_reduction = False
        mkldnn.enabled = True  # type: ignore[assignment]
        torch.set_num_threads(1)
        with one_thread(), _compiler():
            yield
    finally:
        torch.set_deterministic_debug_mode(before[0])
        torch.utils.deterministic.fill_uninitialized_memory = before[1]  # type: ignore[attr-defined]
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = before[2:6]
        matmul.allow_bf16_reduced_precision_reduction = before[6]
        torch.set_num_threads(before[7])
        mkldnn.enabled = before[8]


@contextmanager
def _compiler() -> Iterator[None]:
    """For networks that PyTorch compiles: nothing chosen by the clock.

    `torch.use_deterministic_algorithms` would see to it by importing the compiler, which takes seconds, for networks
    that never use it.
    """
    before = os.environ.get(COMPILER), getattr(sys.modules.get(COMPILER_MODULE), "deterministic", None)
    os.environ[COMPILER] = "1"  # read when it is imported
    if (config := sys.modules.get(COMPILER_MODULE)) is not None:
        config.deterministic = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        if before[0] is None:
            del os.environ[COMPILER]
        else:
            os.environ[COMPILER] = before[0]
        if (config := sys.modules.get(COMPILER_MODULE)) is not None:
            config.deterministic = before[0] == "1" if before[1] is None else before[1]  # type: ignore[attr-defined]
