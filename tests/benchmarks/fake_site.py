"""pyinfra as a person calls it, with hosts that answer at once and do nothing: what the control machine alone costs.

python -m tests.benchmarks.fake_site INVENTORY deploys/site.py -y
"""

from __future__ import annotations

import os
import resource
import sys

os.environ["PYINFRA_FAKE_DELAY"] = "0"
os.environ["PYINFRA_FAKE_DELAY_JITTER"] = "0"

from pyinfra_cli.main import main as pyinfra_main  # patches with gevent


def play_hosts() -> None:
    """Every host that would be reached by ssh is played by pyinfra's own fake connector."""
    import pyinfra.api.inventory
    from pyinfra.api.connectors import get_execution_connectors

    def connectors() -> dict[str, object]:
        found: dict[str, object] = get_execution_connectors()
        return {**found, "ssh": found["fake"]}

    pyinfra.api.inventory.get_execution_connectors = connectors


def main() -> None:
    play_hosts()
    try:
        pyinfra_main()
    finally:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        peak_mib, cpu_s = usage.ru_maxrss // 1024, usage.ru_utime + usage.ru_stime
        print(f"fake_site: {cpu_s:.1f} s of processor time, {peak_mib} MiB at most", file=sys.stderr)


if __name__ == "__main__":
    main()
