"""A certificate for each node that passed: what of the cluster's certificate speaks for that node alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from validation.certificate_model import Certificate, NodeCertificate, NodeEntry
from validation.model import Outcome
from validation.report_words import SUBSTRATE_WORDS, counted

NOT_ASKED = "not run"


def node_certificates(certificate: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Node → its certificate, of nodes that passed every stage and whose hardware is locked.

    Without the lock nothing could be compared later; a run of some stages (`--only`) certifies no node.
    """
    document = Certificate.model_validate(certificate)
    if NOT_ASKED in document.stages.values():
        return {}
    return {
        name: _node_certificate(name, entry, document).model_dump(mode="json")
        for name, entry in document.nodes.items()
        if entry.verdict is Outcome.PASS and entry.hardware_sha256
    }


def _node_certificate(name: str, entry: NodeEntry, document: Certificate) -> NodeCertificate:
    passed = sum(check.outcome is Outcome.PASS for check in entry.checks)
    said = f"Node {name} of cluster {document.cluster} passed {counted(passed, 'check')} of its own at level "
    return NodeCertificate(
        node=name,
        cluster=document.cluster,
        verdict=entry.verdict,
        substrate=document.substrate,
        statement=" ".join(part for part in (SUBSTRATE_WORDS[document.substrate], f"{said}{document.level}.") if part),
        level=document.level,
        run_id=document.run_id,
        version=document.version,
        issued_at=document.issued_at,
        expires_at=document.expires_at,
        hardware_sha256=entry.hardware_sha256 or "",
        inventory_sha256=entry.inventory_sha256,
        versions=entry.versions,
        results_sha256=document.results_sha256,
        coverage={"passed": passed, "checks": len(entry.checks)},
    )
