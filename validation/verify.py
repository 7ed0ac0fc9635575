"""Check a certificate: who signed it, whether it has expired, and whether what it is about has changed since."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from inventory.hardware import HardwareLock
from inventory.loading import hardware_lock_path, load_cluster
from inventory.model import Cluster
from inventory.node_part import node_part_sha256
from validation.run_options import UsageError
from validation.signing import (
    NODE_PUBLIC_KEY,
    BadSignature,
    NoKey,
    fingerprint,
    public_key_of,
    read_public_key,
    same_key,
    signer_of,
)

GOOD, NOT_GOOD, NOT_TOLD = 0, 1, 2
LARGEST_BYTES = 64 * 2**20
CLOCK_SLACK = timedelta(minutes=10)


class Void(Exception):
    """It does not certify what the caller asks about; the text goes on after "certificate.json ": one sentence."""


def verify(path: Path, inventory: str | None, key_file: Path | None, now: datetime | None = None) -> tuple[int, str]:
    """Exit status and one sentence. UsageError if the file is no certificate or a key is missing.

    With an inventory the nodes are asked for their versions, once everything that can be known without them is right.
    """
    document = _read(path)
    try:
        _check_signature(document, _trusted_key(inventory, key_file))
        _check_claim(document)
        _check_time(document, now or datetime.now(UTC))
        if inventory is None:
            return _without_inventory(path, document)
        cluster, lock = load_cluster(inventory), HardwareLock.load(hardware_lock_path(inventory))
        _check_cluster(document, cluster)
        _check_nodes(document, cluster, lock)
        missing = _check_versions(document, cluster, lock)
    except (Void, BadSignature) as error:
        return NOT_GOOD, f"{path} {error}"
    if missing:
        return NOT_TOLD, f"{path} is genuine, but whether it still holds can't be told: {missing}"
    return GOOD, f"{_valid(path, document)}, and nothing that it rests on has changed"


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.is_dir():
            path = path / "certificate.json"
        if path.stat().st_size > LARGEST_BYTES:
            raise UsageError(f"{path} is no certificate: it is larger than any")
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is no certificate: it is not JSON") from None
    if not isinstance(document, dict) or not {"run_id", "verdict", "expires_at"} <= set(document):
        raise UsageError(f"{path} is no certificate; give certificate.json or certificates/NODE.json of a run")
    return document


def _trusted_key(inventory: str | None, key_file: Path | None) -> Ed25519PublicKey | None:
    """The key that is known from elsewhere than the certificate; None if nothing was given and this is no node."""
    try:
        if key_file is not None:
            return read_public_key(key_file)
        if inventory is not None:
            return public_key_of(inventory)
        return read_public_key(NODE_PUBLIC_KEY) if NODE_PUBLIC_KEY.exists() else None
    except NoKey as error:
        raise UsageError(str(error)) from None


def _check_signature(document: Mapping[str, Any], trusted: Ed25519PublicKey | None) -> None:
    signer = signer_of(document)
    if trusted is None:
        raise Void(
            f"is intact and signed with the key {fingerprint(signer)}, but nothing here says whose key that is: "
            "add the inventory, or --key FILE with the cluster's public key"
        )
    if not same_key(signer, trusted):
        raise Void(f"is signed with another key ({fingerprint(signer)}) than this cluster's ({fingerprint(trusted)})")


def _check_claim(document: Mapping[str, Any]) -> None:
    """A genuine certificate may say that nothing is certified."""
    if "node" in document:
        if document["verdict"] != "PASS":
            raise Void(f"is genuine and says that node {document['node']} did not pass ({document['verdict']})")
    elif document.get("certified") is not True:
        raise Void(f"is genuine and certifies nothing ({document['verdict']}): {document.get('statement', '')}")


def _check_time(document: Mapping[str, Any], now: datetime) -> None:
    try:
        issued, expires = (datetime.fromisoformat(document[name]) for name in ("issued_at", "expires_at"))
    except (TypeError, ValueError, KeyError):
        raise Void("is damaged: its times can't be read") from None
    if issued > now + CLOCK_SLACK:
        raise Void(
            f"was issued in the future, at {document['issued_at']}: this machine's clock or its maker's is wrong"
        )
    if expires <= now:
        raise Void(f"expired on {document['expires_at']}: validate again")


def _without_inventory(path: Path, document: Mapping[str, Any]) -> tuple[int, str]:
    """Genuine and in time; a rehearsal's certifies no machine, so that nobody takes it for one that does."""
    if document.get("substrate") != "hardware":
        return NOT_GOOD, (
            f"{path} is genuine, but of a {str(document.get('substrate')).upper()}: it certifies no machine; add the "
            "inventory to check it as what it is"
        )
    said = "; whether the cluster has changed since was not checked: add its inventory"
    return GOOD, f"{_valid(path, document)}{said}"


def _valid(path: Path, document: Mapping[str, Any]) -> str:
    substrate = str(document["substrate"])
    what = f"node {document['node']} of cluster {document['cluster']}" if "node" in document else document["cluster"]
    about = f"of {what}" if substrate == "hardware" else f"of a {substrate.upper()} of {what}, which is no hardware"
    return f"{path} is a valid certificate {about}, level {document['level']}, until {document['expires_at']}"


# --- what it is about --------------------------------------------------------------------------------------------


def _entries(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Node → its hashes and versions, of either kind of certificate."""
    return {document["node"]: document} if "node" in document else dict(document["nodes"])


def _check_cluster(document: Mapping[str, Any], cluster: Cluster) -> None:
    if document["cluster"] != cluster.name:
        raise Void(f"is about cluster {document['cluster']}, not about {cluster.name}")
    if document["substrate"] not in (cluster.substrate, "simulation"):
        raise Void(f"is about {document['substrate']}, and the inventory describes {cluster.substrate}")
    if document["substrate"] == "simulation" == cluster.substrate or "node" in document:
        return
    declared, certified = {node.name for node in cluster.nodes}, set(document["nodes"])
    if new := sorted(declared - certified):
        raise Void(f"is void: it does not cover {', '.join(new)}, which the inventory has now; validate again")
    if gone := sorted(certified - declared):
        raise Void(f"is void: {', '.join(gone)} is no longer in the inventory; validate again")


def _check_nodes(document: Mapping[str, Any], cluster: Cluster, lock: HardwareLock) -> None:
    known = {node.name: node for node in cluster.nodes}
    for name, entry in _entries(document).items():
        if name not in known:
            raise Void(f"is void: {name} is no longer in the inventory")
        if entry["inventory_sha256"] != node_part_sha256(cluster, known[name]):
            raise Void(f"is void: what the inventory says of {name} (or its networks, storage, software) has changed")
        locked = lock.nodes.get(name)
        if locked is None or entry["hardware_sha256"] != locked.sha256:
            raise Void(f"is void: the hardware lock of {name} has changed; validate again")


def _check_versions(document: Mapping[str, Any], cluster: Cluster, lock: HardwareLock) -> str:
    """Void for a version that changed; else what could not be compared, or an empty text."""
    from validation.node_gather import ask_versions

    entries = _entries(document)
    found, missing = ask_versions(cluster, lock, list(entries))
    for name, versions in found.items():
        if differs := ", ".join(_changed(entries[name]["versions"], versions)):
            raise Void(f"is void: {name} was certified with other versions ({differs}); validate again")
    return "; ".join(f"the versions on {name} could not be read ({why})" for name, why in missing.items())


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for what in dict.fromkeys((*before, *now)):
        if before.get(what, "") != now.get(what, ""):
            yield f"{what} {before.get(what) or 'none'} → {now.get(what) or 'none'}"
