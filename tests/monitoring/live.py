"""A lab with monitoring: deployed, asked over its real Prometheus, and troubled."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.lab.handle import ROOT, Lab, run

NAME = "watch"
INVENTORY = """\
from inventory.model import Cluster, External, Monitoring, Network, Node, Ssh

CLUSTER = Cluster(
    name="watched",
    substrate="rehearsal",
    state_dir={state!r},
    networks=(Network(name="lan", cidr="10.77.160.0/24", speed_gbps=1),),
    nodes=(
        Node(name="head", address="10.77.160.10", roles=("controller",)),
        Node(name="n1", address="10.77.160.11"),
        Node(name="n2", address="10.77.160.12"),
    ),
    ssh=Ssh(key={state!r} + "/id_ed25519", known_hosts={state!r} + "/known_hosts"),
    storage=(External(path="/shared"),),
    time_servers=(),
    monitoring=Monitoring(),
)
globals().update(CLUSTER.groups(__file__))
"""


def write_inventory(folder: Path) -> Lab:
    """An inventory of three watched nodes, with its state below `folder`."""
    path = folder / "watched_lab.py"
    path.write_text(INVENTORY.format(state=str(folder / "state")), encoding="utf-8")
    return Lab(str(path), NAME)


def deploy(lab: Lab) -> str:
    """Run site.py; what it said."""
    python = str(ROOT / ".venv/bin/pyinfra")
    done = run([python, lab.inventory, "deploys/site.py", "-y"], timeout_s=900)
    return done.stdout + done.stderr


def ask(lab: Lab, port: int, path: str) -> Any:
    """A GET on the head, with the password that is there; the JSON answer."""
    address = lab.cluster.controller.address
    url = shlex.quote(f"https://{address}:{port}{path}")
    ca = "/usr/local/share/ca-certificates/klaster.crt"
    login = '-u "klaster:$(cat /etc/prometheus/klaster.password)"'
    return json.loads(lab.ssh("head", f"curl -sS --max-time 20 --cacert {ca} {login} {url}").stdout)


def query(lab: Lab, expr: str) -> list[dict[str, Any]]:
    """An instant query's series."""
    from urllib.parse import quote

    answer = ask(lab, 9090, f"/api/v1/query?query={quote(expr)}")
    assert answer["status"] == "success", answer
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


def targets(lab: Lab) -> dict[str, str]:
    """Job and node of each target → health."""
    active = ask(lab, 9090, "/api/v1/targets?state=active")["data"]["activeTargets"]
    return {f"{t['labels']['job']} {t['labels']['instance']}": t["health"] for t in active}


def told(lab: Lab) -> set[tuple[str, str]]:
    """Alerts that Alertmanager would send now (neither silenced nor inhibited): (name, node)."""
    alerts = ask(lab, 9093, "/api/v2/alerts?active=true&inhibited=false&silenced=false")
    return {(alert["labels"]["alertname"], alert["labels"].get("node", "")) for alert in alerts}


def wait_for(what: Callable[[], bool], deadline_s: float) -> float:
    """Seconds until it was true; AssertionError after the deadline."""
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < deadline_s, f"not within {deadline_s:.0f} s"
        time.sleep(3)
    return time.monotonic() - began
