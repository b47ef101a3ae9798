"""Networks from a file of the user, as in net.py:make, for the command line.

Their name in a run is net.py:make@ and the start of the SHA-256 of the file, so that changes of the file are detected.
No command executes code that a run names: the file must be passed again.
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from runoff.errors import InputError
from runoff.recipes import NETWORKS as NAMES
from runoff.torch.networks import NETWORKS

EXPECTED = "FILE.py:FUNCTION, where FUNCTION(shape, n_classes) returns a torch.nn.Module"


def register(network: str) -> str:
    """Return the name of a network, after importing and registering FILE.py:FUNCTION."""
    if network in NAMES:
        return network
    given, _, digest = network.partition("@")
    file, _, function = given.rpartition(":")
    if not file.endswith(".py") or not function:
        raise InputError(f"--network must be one of {', '.join(map(repr, NAMES))} or {EXPECTED}, got {network!r:.80}")
    path = Path(file).expanduser()
    try:
        code = path.read_bytes()
    except OSError as error:
        raise InputError(f"--network {given} cannot be read: {error.strerror}") from None
    start = hashlib.sha256(code).hexdigest()[:12]
    if digest and digest != start:
        raise InputError(
            f"--network {path.name} has changed since training: its SHA-256 starts with {start}, not with {digest:.12}"
        )
    spec = importlib.util.spec_from_file_location(f"runoff_network_{start}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"--network must be {EXPECTED}, got {network!r:.80}")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"--network {given} cannot be imported: {type(error).__name__}: {error!s:.200}") from error
    factory = getattr(module, function, None)
    if not callable(factory):
        raise InputError(f"--network must be {EXPECTED}, and {path.name} has no function {function!r:.40}")
    name = f"{path.name}:{function}@{start}"
    NETWORKS[name] = factory
    return name
