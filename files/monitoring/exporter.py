"""What the controller knows of the cluster, as Prometheus metrics: Slurm, certificates, the last validation, reach.

Runs on the controller as klaster-exporter.service; needs python3-prometheus-client. It listens on the loopback only:
the Prometheus that asks it is on the same machine. Slurm is asked two questions, at most every `slurm_interval_s`.
Try it by hand: python3 exporter.py --once exporter.json
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from exporter_slurm import Job, SlurmNode, Waits, parse_jobs, parse_nodes, slurm_families
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

Family = GaugeMetricFamily | HistogramMetricFamily
SLURM_DEADLINE_S = 4
"""A question of Slurm; two of them and the reach must end within Prometheus' ten seconds."""
REACH_DEADLINE_S = 1.5


def ask(*command: str) -> str | None:
    """What a program of Slurm prints; None if it fails or hangs."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SLURM_DEADLINE_S, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


async def _reach_all(nodes: dict[str, tuple[str, int]]) -> dict[str, bool]:
    async def one(address: str, port: int) -> bool:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(address, port), REACH_DEADLINE_S)
        except (OSError, TimeoutError):
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True

    answers = await asyncio.gather(*(one(*place) for place in nodes.values()))
    return dict(zip(nodes, answers, strict=True))


class Cluster(Collector):
    """Asks when a scrape comes, but not more often than configured; scrapes in between get the last answer."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self._lock = threading.Lock()
        self._asked = -1e9
        self._nodes: list[SlurmNode] | None = None
        self._jobs: list[Job] = []
        self._reached: dict[str, bool] = {}
        self._waits = Waits()
        self._known_running: set[str] | None = None

    def describe(self) -> list[Family]:
        return []

    def collect(self) -> Iterator[Family]:
        with self._lock:
            self._refresh()
            yield from slurm_families(self._nodes, self._jobs, time.time())
            yield self._waits.family()
            yield from self._reach()
            yield from node_certificates(Path(self.config["certificates"]), self.config["compute"])
            yield from declared(self.config)

    def _refresh(self) -> None:
        if time.monotonic() - self._asked < self.config["slurm_interval_s"]:
            return
        self._asked = time.monotonic()
        nodes = ask("scontrol", "-d", "-o", "show", "nodes")
        # A slurmctld that is down makes scontrol wait: once is enough.
        jobs = None if nodes is None else ask("scontrol", "-d", "-o", "show", "jobs")
        self._nodes = None if nodes is None else parse_nodes(nodes)
        self._jobs = parse_jobs(jobs or "")
        if jobs is not None:
            self._remember_waits()
        places = {name: (address, self.config["ssh_port"]) for name, address in self.config["nodes"].items()}
        self._reached = asyncio.run(_reach_all(places))

    def _remember_waits(self) -> None:
        """The wait of each job that began since the last question, but of none from before this program's start."""
        running = {job.id: job for job in self._jobs if job.state == "RUNNING"}
        if self._known_running is not None:
            for job in (job for name, job in running.items() if name not in self._known_running):
                self._waits.add(job.partition, max(0.0, job.started - job.submitted))
        self._known_running = set(running)

    def _reach(self) -> Iterator[Family]:
        family = GaugeMetricFamily(
            "klaster_node_reachable", "1 if the node's ssh port answers the controller.", labels=["node"]
        )
        for name, answers in self._reached.items():
            family.add_metric([name], float(answers))
        yield family


def node_certificates(folder: Path, compute: list[str]) -> Iterator[Family]:
    """Each compute node's certificate file: whether there is one, and until when it holds."""
    certified = GaugeMetricFamily("klaster_node_certified", "1 if the node holds a certificate.", labels=["node"])
    expiry = GaugeMetricFamily(
        "klaster_node_certificate_expiry_timestamp_seconds", "When the node's certificate ends.", labels=["node"]
    )
    for name in compute:
        try:
            found = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
            ends = datetime.fromisoformat(found["expires_at"]).timestamp()
        except (OSError, ValueError, KeyError, TypeError):
            certified.add_metric([name], 0.0)
            continue
        certified.add_metric([name], float(found.get("verdict") == "PASS"))
        expiry.add_metric([name], ends)
    yield from (certified, expiry)


def declared(config: dict[str, Any]) -> Iterator[Family]:
    """What the inventory says of each node, to hold measurements against."""
    speed = GaugeMetricFamily(
        "klaster_link_declared_bytes_per_second", "Declared speed of the node's first link.", labels=["node"]
    )
    for name, value in config["link_bytes_per_second"].items():
        speed.add_metric([name], value)
    yield speed


class Handler(BaseHTTPRequestHandler):
    """GET /metrics: this program's own families, then the file of the last validation as it is."""

    registry: CollectorRegistry
    last_run: Path

    def do_GET(self) -> None:  # http.server calls it so
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        body = page(self.registry, self.last_run)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is http.server's
        """A line a scrape would fill the journal."""


def page(registry: CollectorRegistry, last_run: Path) -> bytes:
    """Everything a scrape gets, this program's own processor time included."""
    body = generate_latest(registry)
    with contextlib.suppress(OSError):
        body += last_run.read_bytes()
    seconds = "klaster_exporter_cpu_seconds_total"
    told = f"# HELP {seconds} Processor time of this exporter and of what it asked.\n# TYPE {seconds} counter\n"
    return body + f"{told}{seconds} {sum(_cpu_times()):.6f}\n".encode()


def _cpu_times() -> tuple[float, ...]:
    import os

    return tuple(os.times())[:4]


def main(arguments: list[str]) -> None:
    config = json.loads(Path(arguments[-1]).read_text(encoding="utf-8"))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Cluster(config))
    last_run = Path(config["last_run"])
    if "--once" in arguments:
        sys.stdout.buffer.write(page(registry, last_run))
        return
    Handler.registry, Handler.last_run = registry, last_run
    ThreadingHTTPServer(("127.0.0.1", config["port"]), Handler).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
