"""Whether the kernel of every compute node can hold jobs to their limits."""

from __future__ import annotations

from collections.abc import Iterable

from inventory.hardware import FoundNode


def with_cgroups(nodes: Iterable[FoundNode]) -> bool:
    """cgroup v2 confinement needs its memory controller on every node: one configuration serves all of them."""
    return all("memory" in node.cgroup_controllers for node in nodes)
