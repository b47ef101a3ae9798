"""Compile the kernels that the tests use, each of them once, in two processes: `python -m tests.compiled`.

Workers of pytest begin with the same tests, so each of them would compile nearly all kernels.
"""

import multiprocessing

import numpy as np

import runoff
from runoff._kernels.compiling import cache_directory
from runoff.spreads import cyclic
from tests.torture.oracle import truth
from tests.torture.targets import truth_to

CASES = [
    *((election, dtype) for election in ("runoff", "maximin", "plurality") for dtype in ("u1", "f4", "f8", "u2")),
    ("collective", "f4"),
    ("brute force", "f4"),
]


def compile_one(case):
    election, dtype = case
    scores = np.random.default_rng(0).integers(0, 9, size=(300, 7, 4)).astype(dtype)
    if election == "collective":
        runoff.rank(scores)
        runoff.rank(scores.astype("f8"))
        certificates = runoff.certify(np.repeat(scores[:20], 8, axis=1), election="plurality")
        runoff.collective_accuracy(certificates, certificates.prediction, [12], rounds=1)
        return
    if election == "brute force":
        truth(scores[:1, :4], "runoff", None)
        truth_to(scores[:1, :4], "runoff", None, 0)
        return
    for spread in (cyclic(7, [0, 1, 3]), None):
        certificates = runoff.certify(scores[:2], election=election, spread=spread)
        certificates.attack(0)
        if dtype != "u2":
            certificates.radius_to(0)


if __name__ == "__main__" and cache_directory() is not None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(compile_one, CASES, chunksize=1)
