"""All alerts: `python -m files.monitoring.alerts` writes rules.yml for Prometheus and docs/alerts.md for people."""

from __future__ import annotations

import json
from pathlib import Path

from files.monitoring import alerts_cluster, alerts_gpu, alerts_node

HERE = Path(__file__).resolve().parent
RULES, PAGE = HERE / "rules.yml", HERE.parents[1] / "docs" / "alerts.md"
ALERTS = (*alerts_cluster.ALERTS, *alerts_node.ALERTS, *alerts_gpu.ALERTS)


def rules_text() -> str:
    """rules.yml: JSON strings are YAML strings."""
    lines = ["# Written by `python -m files.monitoring.alerts`.", "groups:", "  - name: klaster", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expr, ensure_ascii=False)}",
            f"        for: {alert.wait}",
            f"        labels: {{ severity: {alert.severity}, scope: {alert.scope}, topic: {alert.topic} }}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary, ensure_ascii=False)}",
            f"          means: {json.dumps(alert.means, ensure_ascii=False)}",
            f"          first: {json.dumps(alert.first, ensure_ascii=False)}",
            f"          docs: docs/alerts.md#{alert.name.lower()}",
        ]
    return "\n".join(lines) + "\n"


def page_text() -> str:
    """docs/alerts.md: one heading an alert."""
    lines = [
        "# Alerts",
        "",
        "Written by `python -m files.monitoring.alerts`. Each alert says here what it means and what to do first.",
        "*critical*: somebody should look now; *warning*: today; *info*: whoever it is about. An alert of the whole",
        "cluster silences those of nodes with the same topic; a node that is down silences all else about it.",
        "",
    ]
    for alert in ALERTS:
        told = alert.summary.replace("{{ ", "").replace(" }}", "").replace("$labels.", "").replace("$", "")
        told = told.replace(" | humanizeDuration", "").replace(" | humanizePercentage", "")
        about = "the whole cluster" if alert.scope == "cluster" else "one node"
        lines += [
            f"## {alert.name}",
            "",
            f"*{told}* · {alert.severity} · topic {alert.topic} · about {about} · told after {alert.wait}",
            "",
            f"**Means:** {alert.means}",
            "",
            f"**Do first:** {alert.first}",
            "",
            "```promql",
            alert.expr,
            "```",
            "",
        ]
    return "\n".join(lines)


def main() -> None:
    RULES.write_text(rules_text(), encoding="utf-8")
    PAGE.write_text(page_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
