"""The certificate of an erasure: what was erased, when, what stays, signed by the installation."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from apps.checkpoints import signing_keys
from apps.erasure.backups import ListedBackup
from apps.erasure.errors import ErasureProblem
from apps.erasure.plan import Plan
from apps.installation.models import Erasure
from trainops.version import VERSION as TRAINOPS

FORMAT, VERSION = "trainops-erasure", 1
OF_OTHERS = "the operations belong to others; they have ids of erased operations, and no names"
RULES_BY_NAME = "notification rules that name the owner, as another account is named now"
REASONS = {
    "datasets": "operations of others use them, or others have uploaded the same files; owner and "
    "names of the user are erased",
    "operations of others that began from erased ones": OF_OTHERS,
    "operations of others that started with erased weights": OF_OTHERS,
    "operations of others that used erased models": OF_OTHERS,
    "operations with files in sinks": "the files are outside of this installation",
    "entries of the audit log": "entries cannot be changed",
    "days of compute hours, without a name": "budgets and reports of usage count them",
    "datasets of others that the user uploaded, too": "they belong to others; that the user "
    "uploaded them is erased",
    RULES_BY_NAME: "they are about the operations of that account; its own data is left as it is",
}


def of(
    row: Erasure, plan: Plan, datasets_kept: Collection[str], backups: Sequence[ListedBackup]
) -> dict[str, Any]:
    """Return the content of the certificate of a finished erasure, with its signature."""
    finished_at = row.finished_at
    gone = [each for each in plan.datasets if each.id not in datasets_kept]
    kept = [each for each in plan.datasets if each.id in datasets_kept]
    content: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "trainops": TRAINOPS,
        "user": row.username,
        "began_at": row.began_at.isoformat(),
        "finished_at": finished_at.isoformat() if finished_at else "",
        "erased": {
            "account": True,
            "operations": [asdict(each) for each in plan.operations],
            "studies": plan.studies,
            "datasets": [
                {"id": each.id, "digest": each.digest, "size_bytes": each.size_bytes}
                for each in gone
            ],
            "numbers": plan.numbers,
        },
        "kept": {
            "datasets": [
                {
                    "id": each.id,
                    "digest": each.digest,
                    "used_by": each.used_by,
                    "other owners": each.num_other_owners,
                }
                for each in kept
            ],
            "operations of others that began from erased ones": plan.forks,
            "operations of others that started with erased weights": plan.warm_starts,
            "operations of others that used erased models": plan.model_users,
            "operations with files in sinks": plan.sink_files,
            **plan.kept,
        },
        "reasons": REASONS,
        "backups": [asdict(each) for each in backups],
    }
    return content | {"signature": signing_keys.sign(_payload(content))}


def signer_of(certificate: Mapping[str, Any]) -> str:
    """Return the name of the key that signed a certificate. Raises ErasureProblem."""
    if certificate.get("format") != FORMAT:
        raise ErasureProblem(f"The format is {certificate.get('format')!r}; allowed: {FORMAT}.")
    content = {name: value for name, value in certificate.items() if name != "signature"}
    key = signing_keys.signer(str(certificate.get("signature")), _payload(content))
    if key is None:
        raise ErasureProblem("The signature does not match: the certificate was altered.")
    name = signing_keys.accepted().get(key)
    if name is None:
        raise ErasureProblem(f"The certificate is signed by an unknown key: {key}.")
    return name


def _payload(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"trainops erasure certificate 1\n{text}".encode()
