"""What the node stage says of a node's way to the registry."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from inventory.model import Cluster
from validation.checks.node import Finding, Gathered
from validation.checks.registry import registry
from validation.model import Outcome
from validation.node_file import load

HEALTHY = Path(__file__).parents[1] / "recordings" / "node" / "healthy.json"
RIGHT = {"untrusted": "", "unreachable": "", "stranger": 401, "node": 200}


def finding(**changes: Any) -> Finding:
    healthy: Gathered = load(HEALTHY)
    cluster = Cluster.model_validate({**healthy.cluster.model_dump(mode="json"), "registry": {}})
    probes = {**healthy.probes, "n3": {**healthy.probes["n3"], "registry": {"ok": {**RIGHT, **changes}}}}
    return registry(dataclasses.replace(healthy, cluster=cluster, probes=probes).subject("n3"))


def test_trust_and_account_pass() -> None:
    """401 for strangers and 200 for the node over verified TLS is a pass."""
    assert finding().outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("changes", "cause", "culprit"),
    [
        ({"untrusted": "unable to get local issuer certificate"}, "registry-trust", ""),
        ({"node": 401}, "registry-account", ""),
        ({"node": 0}, "registry-account", ""),
        ({"node": 502}, "registry", "registry on head"),
        ({"stranger": 200}, "registry-open", "registry on head"),
        ({"unreachable": "head:5000: refused"}, "registry", "registry on head"),
    ],
)
def test_lost_trust_is_the_nodes_and_a_dead_registry_the_heads(
    changes: dict[str, Any], cause: str, culprit: str
) -> None:
    """A node that lost its trust or account is named itself; what the registry does wrong is the service's."""
    found = finding(**changes)
    assert (found.outcome, found.cause, found.culprit) == (Outcome.FAIL, cause, culprit)
    assert found.remedy
