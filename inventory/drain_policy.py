"""When a node may be taken out of service and put back: the one policy of certification and of the health check.

Standard library only, and nothing of klaster: the deploy puts this very file beside the health check on every node.
The rest of the policy is who calls this: only a failure that was seen again in a retest asks for a drain, never a check
that broke or could not decide, and what is asked for is a drain, so that people's jobs run to their end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

OURS = "klaster:"
"""Reasons that start so were set by this product; only those are ever lifted, and only by a certificate."""
DRAIN_SHARE = 0.5
"""Of the compute nodes (rounded up) may be out of service; beyond it nothing is drained without a person."""
COMMON_SHARE = 0.5
COMMON_NODES = 3
"""The same cause on more than this share of at least so many nodes is not the nodes' own."""


def drain_reason(check: str, cause: str, run_id: str) -> str:
    """`klaster:<check>:<cause> run=<id>`; nothing in it can end a quote or a field of Slurm."""
    return f"{OURS}{_word(check)}:{_word(cause)} run={_word(run_id)}"


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-") or "unknown"


def is_ours(reason: str) -> bool:
    return reason.startswith(OURS)


def room(nodes: int, out: int, share: float = DRAIN_SHARE) -> int:
    """How many more of `nodes` may be drained while `out` of them are not in service; one always may if none is."""
    return max(0, max(1, math.ceil(share * nodes)) - out)


def common_cause(check: str, cause: str, reasons: Iterable[str], nodes: int) -> bool:
    """Whether this cause, on one node more than those drained for it, would be the cluster's and no node's."""
    same = drain_reason(check, cause, "").partition(" run=")[0]
    others = sum(reason.partition(" run=")[0] == same for reason in reasons)
    return nodes >= COMMON_NODES and others + 1 > COMMON_SHARE * nodes
