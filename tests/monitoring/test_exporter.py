"""Slurm's records become metrics: states, reasons, jobs, cards; and the exporter asks seldom."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.monitoring.promtool import run_promtool
from tests.monitoring.test_agent import PROGRAMS

NODES = (
    "NodeName=n1 CPUAlloc=2 CPUTot=4 Gres=gpu:rtx:2(S:0) GresUsed=gpu:rtx:1(IDX:1) RealMemory=1000 AllocMem=500 "
    "State=MIXED+DRAIN Partitions=all Reason=klaster:pairs:slow run=2026 [root@2026-11-30T14:19:28]\n"
    "NodeName=n2 CPUAlloc=0 CPUTot=4 Gres=(null) GresUsed=(null) RealMemory=1000 AllocMem=0 State=IDLE* Weight=1\n"
)
JOBS = (
    "JobId=7 JobName=a UserId=alex(10001) Account=vision JobState=RUNNING Reason=None "
    "SubmitTime=2026-11-30T14:00:00 StartTime=2026-11-30T14:01:00 Partition=all NumCPUs=2 "
    "AllocTRES=cpu=2,gres/gpu=3 JOB_GRES=gpu:3 Nodes=n[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:rtx:2(IDX:0,3)\n"
    "JobId=8 JobName=b UserId=kim(10002) Account=(null) JobState=PENDING Reason=Resources "
    "SubmitTime=2026-11-30T14:00:00 StartTime=Unknown Partition=all NumCPUs=1 ReqTRES=cpu=1 AllocTRES=(null)\n"
)


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program as it runs on the controller."""
    monkeypatch.syspath_prepend(str(PROGRAMS))
    import exporter as program  # type: ignore[import-not-found]

    yield program
    for name in ("exporter", "exporter_slurm"):
        sys.modules.pop(name, None)


def _config(tmp_path: Path) -> dict[str, Any]:
    return {
        "certificates": str(tmp_path),
        "compute": ["n1", "n2"],
        "last_run": str(tmp_path / "metrics.prom"),
        "link_bytes_per_second": {"n1": 1.25e8},
        "nodes": {},
        "port": 0,
        "slurm_interval_s": 15,
        "ssh_port": 22,
    }


def _page(exporter: ModuleType, config: dict[str, Any]) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(exporter.Cluster(config))
    return str(exporter.page(registry, Path(config["last_run"])).decode())


def test_slurm_and_certificates_are_told(exporter: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A drain with its reason (without the run's id), cards with their job, waiting jobs with why; promtool agrees."""
    monkeypatch.setattr(exporter, "ask", lambda *words: NODES if words[-1] == "nodes" else JOBS)
    certificate = {"verdict": "PASS", "expires_at": "2026-12-01T00:00:00Z"}
    (tmp_path / "n1.json").write_text(json.dumps(certificate), encoding="utf-8")
    (tmp_path / "metrics.prom").write_text(
        "# HELP klaster_x X.\n# TYPE klaster_x gauge\nklaster_x 1\n", encoding="utf-8"
    )
    text = _page(exporter, _config(tmp_path))
    for line in (
        'klaster_slurm_node_drained{node="n1",ours="true",reason="klaster:pairs:slow"} 1.0',
        'klaster_slurm_node_drained{node="n2",ours="",reason=""} 0.0',
        'klaster_slurm_node_responds{node="n2"} 0.0',
        'klaster_slurm_node_gpus{node="n1"} 2.0',
        'klaster_slurm_node_gpus_allocated{node="n1"} 1.0',
        'klaster_gpu_job_info{account="vision",gpu="3",node="n2",slurm_job="7",user="alex"} 1.0',
        'klaster_user_gpus_allocated{account="vision",user="alex"} 3.0',
        'klaster_jobs_pending{partition="all",reason="Resources"} 1.0',
        'klaster_node_certified{node="n1"} 1.0',
        'klaster_node_certified{node="n2"} 0.0',
        "klaster_x 1",
    ):
        assert line in text.splitlines()
    assert run_promtool("check", "metrics", stdin=text).returncode == 0


def test_slurm_is_asked_seldom(exporter: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Scrapes within fifteen seconds share one answer of Slurm."""
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(exporter, "ask", lambda *words: asked.append(words) or NODES)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(exporter.Cluster(_config(tmp_path)))
    for _ in range(3):
        exporter.page(registry, tmp_path / "none")
    assert len(asked) == 2, "one question about nodes, one about jobs"


def test_a_dead_controller_is_told(exporter: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """When slurmctld does not answer, that is what is said, and the rest of the page is there."""
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(exporter, "ask", lambda *words: asked.append(words))
    text = _page(exporter, _config(tmp_path))
    assert len(asked) == 1, "each question waits for its deadline, and Prometheus gives up after ten seconds"
    assert "klaster_slurm_up 0.0" in text.splitlines()
    assert 'klaster_link_declared_bytes_per_second{node="n1"} 1.25e+08' in text


def test_only_waits_of_new_jobs_are_counted(exporter: ModuleType) -> None:
    """A job that ran before the exporter began has no wait in the histogram; one that begins has."""
    cluster = exporter.Cluster({})
    cluster._jobs = exporter.parse_jobs(JOBS)
    cluster._remember_waits()
    cluster._jobs = exporter.parse_jobs(JOBS.replace("JobId=7", "JobId=9"))
    cluster._remember_waits()
    samples = {(s.name, s.labels.get("le")): s.value for s in cluster._waits.family().samples}
    assert samples[("klaster_queue_wait_seconds_count", None)] == 1
    assert samples[("klaster_queue_wait_seconds_bucket", "60.0")] == 1
    assert samples[("klaster_queue_wait_seconds_bucket", "10.0")] == 0


@pytest.mark.parametrize(
    ("text", "names"),
    [("n1", ["n1"]), ("n[1-3,7],head", ["n1", "n2", "n3", "n7", "head"]), ("g[08-10]", ["g08", "g09", "g10"])],
)
def test_host_lists_are_expanded(exporter: ModuleType, text: str, names: list[str]) -> None:
    """Slurm's short form gives every node's name, leading zeros kept."""
    slurm = sys.modules[exporter.parse_jobs.__module__]
    assert slurm.expand(text) == names
