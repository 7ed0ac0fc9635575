"""Monitoring for real: all targets up, every panel has data, the right alert fires, and outside nothing answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from files.grafana.panels import BOARDS
from tests.lab.handle import Lab
from tests.monitoring.live import deploy, query, targets, told, wait_for, write_inventory
from tests.monitoring.promtool import run_promtool

pytestmark = pytest.mark.full
PORTS = (3000, 9090, 9093, 9094, 9100, 9180, 19532)
NOBODYS_FAULT = ("NodeDrained", "DiskFillsUp", "DiskFull", "MemoryPressure")
"""Nodes may be in quarantine, and the lab's nodes share the disk and memory of a machine that does other work too."""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Three nodes, deployed with monitoring, certified once by the nightly program."""
    lab = write_inventory(tmp_path_factory.mktemp("watched"))
    lab.lab("up", lab.inventory, timeout_s=900)
    try:
        deploy(lab)
        lab.ssh("head", "systemctl start klaster-nightly", timeout_s=600)
        wait_for(lambda: set(targets(lab).values()) == {"up"}, 90)
        yield lab
    finally:
        lab.lab("down")


def test_a_second_deploy_changes_nothing(watched: Lab) -> None:
    """Deployed again, no host has a change."""
    lines = [line for line in deploy(watched).splitlines() if "Grand total" in line]
    total, changed, failed, same = lines[0].split()[2:]
    assert (changed, failed, same) == ("-", "-", total)


def test_all_targets_are_up(watched: Lab) -> None:
    """Prometheus reaches every node's exporter, the controller's, Alertmanager and itself."""
    found = targets(watched)
    assert {f"node {n}" for n in ("head", "n1", "n2")} | {"klaster head", "alertmanager head"} <= set(found)
    assert set(found.values()) == {"up"}


def test_every_panel_has_data_or_a_reason(watched: Lab) -> None:
    """Each panel's query is run: it gives data, or the table says why the lab can't have it."""
    wait_for(lambda: bool(query(watched, "klaster_certificate_verdict")), 60)
    empty = [
        f"{board.title}: {panel.title}"
        for board in BOARDS
        for panel in board.panels
        if not panel.lab_lacks and not query(watched, panel.expr.replace("$node", ".*"))
    ]
    assert empty == []


def test_what_the_exporters_say_is_right_by_promtool(watched: Lab) -> None:
    """promtool finds nothing to say against the product's own metrics."""
    text = watched.ssh("head", "curl -sS http://127.0.0.1:9180/metrics; cat /var/lib/prometheus/node-exporter/*.prom")
    ran = run_promtool("check", "metrics", stdin=text.stdout)
    assert ran.returncode == 0, ran.stderr


def _trouble(lab: Lab, put: str, undo: str, alert: str, node: str = "n2") -> None:
    on = node or "head"
    before = told(lab)
    lab.ssh(on, put)
    try:
        wait_for(lambda: (alert, node) in told(lab), 240)
        others = {name for name, _ in told(lab) - before} - {alert, *NOBODYS_FAULT}
    finally:
        lab.ssh(on, undo)
    assert others == set()
    wait_for(lambda: (alert, node) not in told(lab), 420)


@pytest.mark.parametrize(
    ("put", "undo", "alert", "node"),
    [
        ("systemctl stop slurmd", "systemctl start slurmd", "SlurmdDown", "n2"),
        ("systemctl stop munge", "systemctl start munge", "ServiceDown", "n2"),
        ("nft delete table inet klaster", "nft -f /etc/klaster/firewall.nft", "FirewallOff", "n2"),
        (
            "systemctl kill -s STOP prometheus-node-exporter",
            "systemctl kill -s CONT prometheus-node-exporter",
            "TargetMissing",
            "n2",
        ),
        ("systemctl stop slurmctld", "systemctl start slurmctld", "SlurmControllerDown", ""),
    ],
)
def test_the_right_alert_fires_and_no_other(watched: Lab, put: str, undo: str, alert: str, node: str) -> None:
    """A part that is stopped, frozen or flushed is named by its alert alone, and the alert goes when it is healed."""
    _trouble(watched, put, undo, alert, node)


def test_a_node_that_is_cut_off_is_down_and_nothing_else(watched: Lab) -> None:
    """A node that the controller can't reach is told once, as NodeDown: what follows from it is silenced."""
    watched.lab("cut", "head", "n2")
    try:
        wait_for(lambda: ("NodeDown", "n2") in told(watched), 240)
        names = {name for name, node in told(watched) if node == "n2"}
    finally:
        watched.lab("heal")
    assert names == {"NodeDown"}
    wait_for(lambda: ("NodeDown", "n2") not in told(watched), 420)


SCAN = """
import socket, sys
for address in sys.argv[1].split(","):
    for port in sys.argv[2].split(","):
        s = socket.socket(); s.settimeout(1)
        if s.connect_ex((address, int(port))) == 0: print(address, port)
"""


def test_outside_nothing_of_it_answers(watched: Lab) -> None:
    """From an address outside the cluster's networks, no port of monitoring can be connected to."""
    addresses = ",".join(node.address for node in watched.cluster.nodes)
    ports = ",".join(str(port) for port in PORTS)
    found = watched.lab("outside", "python3", "-c", SCAN, addresses, ports, timeout_s=60)
    assert found.stdout.strip() == ""
    assert "22" in watched.lab("outside", "python3", "-c", SCAN, addresses, "22", timeout_s=60).stdout, (
        "it sees nothing"
    )


def test_inside_nothing_answers_without_credentials(watched: Lab) -> None:
    """Each server refuses who has no password or no certificate; other nodes reach only where journals go."""
    head = watched.cluster.controller.address
    status: Callable[[str, str], str] = lambda node, url: watched.ssh(  # noqa: E731 - one line says it
        node, f"curl -s -k -o /dev/null -w '%{{http_code}}' --max-time 5 {url}", check=False
    ).stdout.strip()
    ports = (9090, 9093, 9100)
    assert {port: status("head", f"https://{head}:{port}/metrics") for port in ports} == dict.fromkeys(ports, "401")
    assert {port: status("n1", f"https://{head}:{port}/metrics") for port in ports} == dict.fromkeys(ports, "000")
    assert status("n1", f"https://{head}:19532/upload") == "000", "TLS without a client certificate"
    assert status("n1", f"http://{head}:9180/metrics") == "000"
