"""Devices, and settings under which they give the same bits for the same input."""

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
FIXED = (":4096:8", ":16:8")  # values for which cuBLAS gives the same bits on several streams

# cuBLAS reads this variable at its start, so setting it has no effect after a GPU was used.
_late = torch.cuda.is_initialized() and os.environ.get(WORKSPACE) not in FIXED  # type: ignore[no-untyped-call]
os.environ.setdefault(WORKSPACE, FIXED[0])


def find(device: str | torch.device | None) -> torch.device:
    """Return a device, by default the first GPU or the CPU; raise an error for devices that are not reproducible."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise DeviceError(f"device must be 'cpu', 'cuda' or 'cuda:N', got {device!r}") from None
    if chosen.type == "cpu":
        return torch.device("cpu")
    if chosen.type != "cuda":
        raise DeviceError(
            f"device must be a CPU or a CUDA GPU, got {chosen.type!r}: its kernels promise no fixed order of sums, so "
            "retraining a member could give different results"
        )
    if not torch.cuda.is_available():
        raise DeviceError(f"device {str(device)!r} does not exist: PyTorch sees no CUDA GPU; use device='cpu'")
    if chosen.index is not None and chosen.index >= torch.cuda.device_count():
        raise DeviceError(f"device {str(device)!r} does not exist: PyTorch sees {torch.cuda.device_count()} GPUs")
    if _late or os.environ[WORKSPACE] not in FIXED:
        raise DeviceError(
            f"CUDA was started with {WORKSPACE}={'' if _late else os.environ[WORKSPACE]!r}, with which sums may differ "
            f"from run to run: import runoff.torch before using the GPU, or set {WORKSPACE}={FIXED[0]}"
        )
    return torch.device("cuda", torch.cuda.current_device() if chosen.index is None else chosen.index)


def describe(device: torch.device) -> str:
    """Return a description of the hardware and of settings that affect the last bits of results."""
    names = GPU_LIMITS if device.type == "cuda" else CPU_LIMITS
    limits = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
    if device.type == "cuda":
        return " ".join([torch.cuda.get_device_name(device), *limits])
    return " ".join(["cpu", _processor(), torch.backends.cpu.get_cpu_capability(), *limits])


# Variables by which libraries choose other instructions, which change the last bits of results.
GPU_LIMITS = ("NVIDIA_TF32_OVERRIDE",)
CPU_LIMITS = ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")


def _processor() -> str:
    """Return the name of the processor and a digest of its features."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        kept = [line.split(":", 1)[1].strip() for line in lines if line.startswith(("model name", "flags", "Features"))]
        name, flags = kept[0], kept[1] if len(kept) > 1 else ""
        return f"{name} {hashlib.sha256(flags.encode()).hexdigest()[:16]}"
    except (OSError, IndexError):
        return f"{platform.machine()} {platform.processor()}"


def precision_of(recipe: Recipe, device: torch.device) -> str:
    """Return the precision of a recipe, with "auto" replaced by that of the device."""
    if recipe.precision != "auto":
        return recipe.precision
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"


@contextmanager
def this_thread_alone() -> Iterator[None]:
    """Restrict PyTorch to the calling thread; the number of threads is a setting of each thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


COMPILER, COMPILER_MODULE = "TORCHINDUCTOR_DETERMINISTIC", "torch._inductor.config"
_lock = threading.Lock()
_active_precisions: list[str] = []  # one per caller that currently relies on the settings
_restore = ExitStack()


@contextmanager
def repeatable(precision: str) -> Iterator[None]:
    """Use deterministic kernels, chosen by shape only, and one thread per network on the CPU.

    These settings are global and are restored when the last caller that relies on them has finished.
    """
    with _lock:
        if _active_precisions and ("tf32" in _active_precisions) != (precision == "tf32"):
            raise DeviceError(
                f"networks in {precision} cannot be trained while others in {_active_precisions[0]} are: wait for those"
            )
        if not _active_precisions:
            _restore.enter_context(_settings(precision))
        _active_precisions.append(precision)
    try:
        yield
    finally:
        with _lock:
            _active_precisions.remove(precision)
            if not _active_precisions:
                _restore.close()


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
        cudnn.deterministic, cudnn.benchmark = True, False  # benchmark would choose kernels by measured time
        cudnn.allow_tf32 = matmul.allow_tf32 = precision == "tf32"
        matmul.allow_bf16_reduced_precision_reduction = False
        mkldnn.enabled = True  # type: ignore[assignment]
        torch.set_num_threads(1)
        with one_thread(), _deterministic_compiler():
            yield
    finally:
        torch.set_deterministic_debug_mode(before[0])
        torch.utils.deterministic.fill_uninitialized_memory = before[1]  # type: ignore[attr-defined]
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = before[2:6]
        matmul.allow_bf16_reduced_precision_reduction = before[6]
        torch.set_num_threads(before[7])
        mkldnn.enabled = before[8]


@contextmanager
def _deterministic_compiler() -> Iterator[None]:
    """Prevent PyTorch's compiler from choosing kernels by measured time.

    `torch.use_deterministic_algorithms` would import the compiler for this, which takes seconds, even for networks
    that are not compiled.
    """
    before = os.environ.get(COMPILER), getattr(sys.modules.get(COMPILER_MODULE), "deterministic", None)
    os.environ[COMPILER] = "1"  # read when the compiler is imported
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
