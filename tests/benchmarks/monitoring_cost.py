"""What Prometheus and the product's exporter cost for a large fleet: a real Prometheus, simulated nodes.

    python -m tests.benchmarks.monitoring_cost PAGE [--nodes 64] [--minutes 5]

PAGE is a file with what one real node's exporter gives (the lab's n1 with eight simulated cards, say). Every node gives
the same page with counters that count on. The exporter runs with recorded answers of Slurm: 500 jobs, every card taken.
Prometheus has the product's rules and interval, and its own processor time and memory are read from /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from files.monitoring.alerts import RULES
from roles.monitoring import INTERVAL_S
from tests.monitoring.promtool import program_of_prometheus

ROOT = Path(__file__).parents[2]
COUNTER = re.compile(r"^([a-z_]+_total(?:\{[^}]*\})?) ([0-9.e+]+)$", re.MULTILINE)
JOBS, CARDS = 500, 8


class Nodes(BaseHTTPRequestHandler):
    """/NODE gives a node's page, /klaster the exporter's."""

    page = ""
    began = time.time()
    exporter: Any = None
    exporter_seconds: list[float]

    def do_GET(self) -> None:  # http.server calls it so
        if self.path == "/klaster":
            before = time.thread_time()
            body = self.exporter()
            self.exporter_seconds.append(time.thread_time() - before)
        else:
            more = time.time() - self.began
            body = COUNTER.sub(lambda m: f"{m[1]} {float(m[2]) + more:g}", self.page).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is http.server's
        """Nobody reads it."""


def slurm_answers(count: int) -> tuple[str, str]:
    """`scontrol show nodes` and `show jobs` of a busy fleet."""
    nodes = "".join(
        f"NodeName=n{i} CPUAlloc=64 CPUTot=128 Gres=gpu:{CARDS} GresUsed=gpu:{CARDS}(IDX:0-{CARDS - 1}) "
        f"RealMemory=1000000 AllocMem=500000 State=ALLOCATED Partitions=all\n"
        for i in range(1, count + 1)
    )
    jobs = "".join(
        f"JobId={i} JobName=a UserId=u{i % 40}(10001) Account=team{i % 8} JobState=RUNNING Reason=None "
        "SubmitTime=2026-11-30T14:00:00 StartTime=2026-11-30T14:01:00 Partition=all NumCPUs=8 "
        f"AllocTRES=cpu=8,gres/gpu=1 Nodes=n{i % count + 1} CPU_IDs=0-7 Mem=0 GRES=gpu:1(IDX:{i % CARDS})\n"
        for i in range(1, JOBS + 1)
    )
    return nodes, jobs


def exporter(folder: Path, count: int) -> Any:
    """The product's exporter in this process, whose questions get recorded answers; gives its page."""
    sys.path.insert(0, str(ROOT / "files" / "monitoring"))
    import exporter as program  # type: ignore[import-not-found]
    from prometheus_client import CollectorRegistry

    nodes, jobs = slurm_answers(count)
    program.ask = lambda *words: nodes if words[-1] == "nodes" else jobs
    names = [f"n{i}" for i in range(1, count + 1)]
    config = {
        "certificates": str(folder), "compute": names, "last_run": str(folder / "last.prom"), "nodes": {}, "port": 0,
        "link_bytes_per_second": dict.fromkeys(names, 1.25e9), "slurm_interval_s": INTERVAL_S, "ssh_port": 22,
    }  # fmt: skip
    pairs = [f'klaster_pair_gbps{{src="{a}",dst="{b}"}} 9.4' for a in names for b in names if a != b]
    text = "# HELP klaster_pair_gbps A pair.\n# TYPE klaster_pair_gbps gauge\n" + "\n".join(pairs) + "\n"
    (folder / "last.prom").write_text(text, encoding="utf-8")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(program.Cluster(config))
    return lambda: program.page(registry, folder / "last.prom")


def configuration(count: int, port: int) -> str:
    """prometheus.yml as JSON, which is YAML."""
    where = [f"127.0.0.1:{port}"]
    nodes = [
        {"targets": where, "labels": {"__metrics_path__": f"/n{i}", "node": f"n{i}", "instance": f"n{i}"}}
        for i in range(1, count + 1)
    ]
    jobs = [
        {"job_name": "node", "static_configs": nodes},
        {
            "job_name": "klaster",
            "metrics_path": "/klaster",
            "honor_labels": True,
            "static_configs": [{"targets": where}],
        },
    ]
    interval = {"scrape_interval": f"{INTERVAL_S}s", "evaluation_interval": f"{INTERVAL_S}s"}
    return json.dumps({"global": interval, "rule_files": [str(RULES)], "scrape_configs": jobs})


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int) -> float:
    found = re.search(r"^VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def value_of(port: int, expr: str) -> float:
    from urllib.parse import quote

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?query={quote(expr)}", timeout=30) as answer:
        found = json.load(answer)["data"]["result"]
    return float(found[0]["value"][1]) if found else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=5.0)
    asked = parser.parse_args()
    Nodes.page, Nodes.exporter_seconds = asked.page.read_text(encoding="utf-8"), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Nodes.exporter = staticmethod(exporter(folder, asked.nodes))
        server = ThreadingHTTPServer(("127.0.0.1", 0), Nodes)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (folder / "prometheus.yml").write_text(configuration(asked.nodes, server.server_port), encoding="utf-8")
        own = server.server_port + 1
        command = [program_of_prometheus("prometheus"), f"--config.file={folder}/prometheus.yml",
                   f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{own}",
                   "--storage.tsdb.wal-compression", "--log.level=error"]  # fmt: skip
        with subprocess.Popen(command) as prometheus:
            try:
                report(prometheus.pid, own, folder / "data", asked)
            finally:
                prometheus.terminate()


def report(pid: int, port: int, data: Path, asked: argparse.Namespace) -> None:
    time.sleep(60)  # the first scrapes also make every series
    began, before = time.monotonic(), cpu_seconds(pid)
    time.sleep(asked.minutes * 60)
    share = (cpu_seconds(pid) - before) / (time.monotonic() - began)
    up, series = value_of(port, "sum(up)"), value_of(port, "count({__name__=~'.+'})")
    rate = value_of(port, "sum(scrape_samples_scraped)") / INTERVAL_S
    size = sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
    asking = sorted(Nodes.exporter_seconds)
    print(f"targets up        {up:.0f} of {asked.nodes + 1}")
    print(f"series            {series:,.0f}, {rate:,.0f} samples/s")
    print(f"prometheus        {share:.1%} of a processor, {memory_mib(pid):.0f} MiB, {size / 2**20:.0f} MiB on disk")
    print(
        f"exporter          {asking[len(asking) // 2] * 1000:.0f} ms of processor time a scrape (median), "
        f"{asking[-1] * 1000:.0f} ms at most, {len(asking)} scrapes"
    )
    print(f"load average      {os.getloadavg()[0]:.1f}; peak of this process {peak_mib():.0f} MiB")


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
