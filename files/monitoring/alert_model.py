"""What an alert is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NODE = "{{ $labels.node }}"
"""Prometheus fills it in."""


@dataclass(frozen=True)
class Alert:
    """One alert. `topic` ties a cause of the whole cluster to its consequences on nodes, which it then silences."""

    name: str
    expr: str
    wait: str
    """How long it must hold before somebody is told."""
    severity: Literal["critical", "warning", "info"]
    topic: str
    summary: str
    """One line with Prometheus' placeholders."""
    means: str
    first: str
    """What to do first."""
    scope: Literal["node", "cluster"] = "node"
