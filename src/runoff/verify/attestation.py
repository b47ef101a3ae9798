"""Attestations: an in-toto Statement about a run, and signatures over it.

The subject is the run's manifest, which lists the SHA-256 of every other file; the predicate describes the run and what
was verified. https://in-toto.io/Statement/v1 is the format that sigstore and most supply-chain tools read.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from runoff.verify._report import Report
from runoff.verify.directory import UnfitError, parsed, read

STATEMENT, PREDICATE = "https://in-toto.io/Statement/v1", "urn:runoff:attestation:1"
NAMESPACE = "runoff"  # of signatures made with ssh-keygen -Y sign
MOST = 2**24
FIELDS = ("dataset", "versions", "trained_by", "settings", "election", "edits")


def statement(report: Report) -> dict[str, Any]:
    """Return the statement about a verified directory."""
    facts = report.facts
    return {
        "_type": STATEMENT,
        "subject": [{"name": "manifest.json", "digest": {"sha256": facts["manifest_sha256"]}}],
        "predicateType": PREDICATE,
        "predicate": {
            **{name: facts[name] for name in FIELDS if name in facts},
            "certificates": facts.get("certificates", []),
            "verification": {"checked": report.checked, "not_checked": report.not_checked},
        },
    }


def compare(path: Path, report: Report) -> None:
    """Compare an attestation with the directory on disk."""
    try:
        attested = parsed(read(path, MOST))
        (subject,) = attested["subject"]
        predicate = attested["predicate"]
        claims = predicate.get("certificates", [])
        fits = attested["_type"] == STATEMENT and attested["predicateType"] == PREDICATE and isinstance(claims, list)
    except UnfitError as error:
        report.files(str(path), str(error))
        return
    except (AttributeError, KeyError, TypeError, ValueError):
        fits = False
    if not fits:
        report.files(str(path), "is not an attestation of a run")
        return
    if subject != {"name": "manifest.json", "digest": {"sha256": report.facts.get("manifest_sha256")}}:
        report.files(str(path), "attests to a manifest.json other than the one in this directory")
        return
    expected = statement(report)["predicate"]
    for field in FIELDS:
        if predicate.get(field) != expected.get(field):
            report.files(str(path), f"disagrees with the run about {field}")
            return
    verified = {entry["file"]: entry for entry in expected["certificates"]}
    for entry in claims:
        name: Any = entry.get("file") if isinstance(entry, dict) else None
        if name in verified and entry != verified[name]:
            report.files(str(path), f"claims a certified accuracy that differs from that of {name}")
            return
        if name not in verified:
            report.files(str(path), f"claims certified accuracy from {name!r:.60}, which was not verified")
            return
    report.passed(f"{path.name} attests to this manifest and to these results")


def check_signature(attestation: Path, signature: Path, allowed: Path, signer: str, report: Report) -> None:
    """Check a signature over an attestation, made with `ssh-keygen -Y sign -n runoff`."""
    program = shutil.which("ssh-keygen")
    if program is None:
        report.files(str(signature), "cannot be checked: ssh-keygen (OpenSSH 8.1 or later) is not installed")
        return
    try:
        data = read(attestation, MOST)
        for file in (signature, allowed):
            read(file, MOST)
    except UnfitError as error:
        report.files(f"{attestation}, {signature}, {allowed}", str(error))
        return
    command = [program, "-Y", "verify", "-f", str(allowed), "-I", signer, "-n", NAMESPACE, "-s", str(signature)]
    process = subprocess.run(command, input=data, capture_output=True, timeout=60, check=False)  # noqa: S603
    if process.returncode:
        reason = (process.stderr + process.stdout).decode("utf-8", "replace").strip().splitlines()
        report.files(
            str(signature), f"is not a valid signature of {signer} ({reason[0][:120] if reason else 'refused'})"
        )
        return
    report.passed(f"{signature.name} is a signature of {signer} over {attestation.name}")
