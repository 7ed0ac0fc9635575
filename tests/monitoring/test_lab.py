"""Monitoring for real: all targets up, every panel has data, metrics are well formed, and outside nothing answers."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from files.grafana.panels import BOARDS
from tests.lab.handle import Lab
from tests.monitoring.live import deploy, query, scrape, targets, wait_for
from tests.monitoring.promtool import run_promtool

pytestmark = pytest.mark.full
SERIES_A_NODE = 450
"""Without cards, on two to four processors."""
PORTS = (3000, 9090, 9093, 9094, 9100, 9180, 19532)


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


SERVERS = {9100: ("head", "n1", "n2"), 9090: ("head",), 9093: ("head",)}
"""Port → nodes that give metrics there over TLS; the exporter of the controller is asked on its loopback."""
NOT_OURS = {"prometheus", "alertmanager", "node", "go", "net", "promhttp", "process"}
"""First word of metrics that others name: promtool has opinions about some."""


def test_what_every_exporter_says_is_right_by_promtool(watched: Lab) -> None:
    """A scrape of each is well formed; of the names that are ours promtool has nothing to say."""
    texts = [watched.ssh("head", "curl -sS http://127.0.0.1:9180/metrics").stdout]
    for port, nodes in SERVERS.items():
        texts += [scrape(watched, node, port) for node in nodes]
    for text in texts:
        ran = run_promtool("check", "metrics", stdin=text)
        said = [line for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
        about_ours = [line for line in said if re.split(r"[_ ]", line)[0] not in NOT_OURS]
        assert ran.returncode in (0, 3), "3: it would have named something differently"
        assert about_ours == []


def test_a_nodes_series_are_bounded(watched: Lab) -> None:
    """What docs/monitoring.md states of a node's series holds, with room for the lab's own interfaces and disks."""
    for node in ("head", "n1", "n2"):
        series = [line for line in scrape(watched, node, 9100).splitlines() if line and not line.startswith("#")]
        assert len(series) < SERIES_A_NODE


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
