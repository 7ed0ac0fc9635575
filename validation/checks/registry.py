"""Verdict on a node's way to the cluster's container registry: trust, account, and that strangers get nothing."""

from __future__ import annotations

from typing import Any

from inventory.containers import registry_node
from validation.checks.node import Finding, Subject, answer, failed, not_applicable, passed

AGAIN = "run the deploy again: it lays the cluster's CA and the node's account"


def registry(subject: Subject) -> Finding:
    """TLS verifies against the system's authorities, the node's account is let in, nobody else is."""
    if subject.cluster.registry is None:
        return not_applicable("no registry declared")
    found: dict[str, Any] = answer(subject.probe, "registry")
    name = registry_node(subject.cluster)
    required, service = "verified TLS; 401 without, 200 with the node's account", f"registry on {name}"
    if found["untrusted"]:
        return failed(
            f"certificate of {name} is not trusted: {found['untrusted']}",
            required,
            "cluster's CA",
            "registry-trust",
            AGAIN,
        )
    if found["unreachable"]:
        remedy = f"on {name}: systemctl status nginx docker-registry"
        return failed(
            found["unreachable"], required, "inventory", "registry", remedy, culprit_kind="service", culprit=service
        )
    measured = f"{found['stranger']} without, {found['node']} with the node's account"
    if found["stranger"] != 401:
        remedy = "the registry must ask for an account: run the deploy again, then look at nginx there"
        return failed(measured, required, "inventory", "registry-open", remedy, culprit_kind="service", culprit=service)
    if found["node"] in (401, 403, 0):
        return failed(measured, required, "inventory", "registry-account", AGAIN)
    if found["node"] != 200:
        remedy = f"on {name}: journalctl -u docker-registry -u nginx"
        return failed(measured, required, "inventory", "registry", remedy, culprit_kind="service", culprit=service)
    return passed(measured, required, "cluster's CA, inventory")
