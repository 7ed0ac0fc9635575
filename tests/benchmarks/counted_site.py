"""pyinfra as a person calls it, counting what it costs: round trips a host, processor time, memory; as JSON at the end.

    KLASTER_COUNT=out.json python -m tests.benchmarks.counted_site INVENTORY deploys/site.py -y

With KLASTER_ALIASES set many names may be one machine: the one file that differs between them is then left alone.
"""

from __future__ import annotations

import collections
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from pyinfra_cli.main import main as pyinfra_main


def count_round_trips() -> dict[str, int]:
    """Every command that goes over ssh, a host."""
    from pyinfra.connectors.ssh import SSHConnector

    counted: dict[str, int] = collections.Counter()
    original = SSHConnector.run_shell_command

    def counting(self: Any, *args: Any, **kwargs: Any) -> Any:
        counted[self.host.name] += 1
        return original(self, *args, **kwargs)

    SSHConnector.run_shell_command = counting
    return counted


def leave_host_name_alone() -> None:
    from roles import base
    from roles.operations.tree import Tree

    original = base.plan

    def plan(*args: Any) -> Tree:
        tree = original(*args)
        return Tree(tuple(f for f in tree.files if f.path != "/etc/hostname"), tree.directories, tree.absent)

    base.plan = plan


def main() -> None:
    counted = count_round_trips()
    if os.environ.get("KLASTER_ALIASES"):
        sys.path.insert(0, ".")
        leave_host_name_alone()
    try:
        pyinfra_main()
    finally:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        found = {
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "peak_mib": usage.ru_maxrss // 1024,
            "round_trips": max(counted.values(), default=0),
        }
        Path(os.environ["KLASTER_COUNT"]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
