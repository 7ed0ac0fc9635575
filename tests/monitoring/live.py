"""A lab with monitoring: deployed, asked over its real Prometheus, and troubled."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.lab.handle import ROOT, Lab, run
from tests.lab.trial import slot

INVENTORY = """\
from inventory.model import Cluster, External, Gpu, Ldap, Monitoring, Network, Node, Registry, Ssh, Team

CLUSTER = Cluster(
    name="watched",
    substrate="rehearsal",
    state_dir={state!r},
    networks=(Network(name="lan", cidr="{start}0/24", speed_gbps=1),),
    nodes=(
        Node(name="head", address="{start}10", roles=("controller",)),
        Node(name="n1", address="{start}11", gpus=(Gpu(model="NVIDIA A10G", count=8),)),
        Node(name="n2", address="{start}12"),
    ),
    ssh=Ssh(key={state!r} + "/id_ed25519", known_hosts={state!r} + "/known_hosts"),
    storage=(External(path="/shared"),),
    time_servers=(),
    monitoring=Monitoring(),
    # A directory, a registry and cards: parts of a cluster that alerts are about.
    teams=(Team(name="red"),),
    identity=Ldap(homes="/shared/home"),
    registry=Registry(),
)
globals().update(CLUSTER.groups(__file__))
"""


def write_inventory(folder: Path) -> Lab:
    """An inventory of three watched nodes, with its state below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "watched_lab.py"
    path.write_text(INVENTORY.format(state=str(folder / "state"), start=slot().start), encoding="utf-8")
    return Lab(str(path), slot().name)


@contextmanager
def watched_lab(folder: Path) -> Iterator[Lab]:
    """The three nodes, deployed, certified once by the nightly program, all targets up; gone afterwards."""
    lab = write_inventory(folder)
    lab.lab("up", lab.inventory, timeout_s=900)
    try:
        lab.lab("gpu", "n1", "eight")
        deploy(lab)
        lab.ssh("head", "touch /var/lib/klaster/stamps/backup-mine")
        for node in ("n1", "n2"):
            lab.ssh(node, "apt-get -q -y install fuse-overlayfs", timeout_s=300)
        lab.ssh("head", "systemctl start klaster-nightly", timeout_s=600)
        wait_for(lambda: set(targets(lab).values()) == {"up"}, 90)
        yield lab
    finally:
        lab.lab("down")


def deploy(lab: Lab) -> str:
    """Run site.py; what it said."""
    python = str(ROOT / ".venv/bin/pyinfra")
    done = run([python, lab.inventory, "deploys/site.py", "-y"], timeout_s=1800)
    return done.stdout + done.stderr


def scrape(lab: Lab, node: str, port: int) -> str:
    """What a server of metrics gives to Prometheus."""
    return get(lab, node, port, "/metrics")


def ask(lab: Lab, port: int, path: str) -> Any:
    """The JSON answer of a server on the head."""
    return json.loads(get(lab, "head", port, path))


def get(lab: Lab, node: str, port: int, path: str) -> str:
    """A GET from the head, with the password that is there."""
    url = shlex.quote(f"https://{lab.cluster.node(node).address}:{port}{path}")
    ca = "/usr/local/share/ca-certificates/klaster.crt"
    login = '-u "klaster:$(cat /etc/prometheus/klaster.password)"'
    return lab.ssh("head", f"curl -sS --max-time 20 --cacert {ca} {login} {url}").stdout


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
