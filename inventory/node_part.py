"""What of the inventory a node's certificate rests on, and its hash: when it changes, the certificate is void."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from inventory.model import Cluster, Node


def node_part(cluster: Cluster, node: Node) -> dict[str, Any]:
    """What was declared of the node, its networks and the software on it; not people, ssh or monitoring.

    Fields at their default are left out, so that a field which a newer klaster adds voids nothing.
    """
    links = [cluster.link(node, network) for network in cluster.networks]
    return {
        "cluster": cluster.name,
        "substrate": cluster.substrate,
        "node": node.model_dump(mode="json", exclude_defaults=True, exclude={"ssh_user", "links"}),
        "links": [link.model_dump(mode="json") for link in links if link.address],
        "storage": [storage.model_dump(mode="json", exclude_defaults=True) for storage in cluster.storage],
        "training": cluster.training.model_dump(mode="json", exclude_defaults=True),
        "gpu_stack": cluster.gpu_stack.model_dump(mode="json", exclude_defaults=True) if cluster.gpu_stack else None,
    }


def node_part_sha256(cluster: Cluster, node: Node) -> str:
    """Of the compact JSON with sorted keys, as the hardware lock hashes a node."""
    text = json.dumps(node_part(cluster, node), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
