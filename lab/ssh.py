"""Command lines that reach a node."""

from __future__ import annotations

from pathlib import Path

from lab.plan import NodePlan, Plan


def ssh_command(plan: Plan, node: NodePlan, command: list[str], *, connect_timeout_s: int = 5) -> list[str]:
    """ssh as root into a node, by the lab's key and the lab's known_hosts only."""
    state = Path(plan.state_dir)
    options = {
        "IdentityFile": state / "id_ed25519",
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": state / "known_hosts",
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "ConnectTimeout": connect_timeout_s,
        "LogLevel": "ERROR",
    }
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    return ["ssh", "-F", "none", *words, f"root@{node.address}", *command]
