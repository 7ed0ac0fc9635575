"""Slurm's nodes and jobs as metric families, from what `scontrol -d -o show nodes` and `… show jobs` print."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily

MOST_USERS = 200
"""Users with series of their own; the smallest beyond that are summed up as "(others)"."""
WAIT_BUCKETS_S = (10, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)
OURS = "klaster:"
Family = GaugeMetricFamily | HistogramMetricFamily


@dataclass(frozen=True)
class SlurmNode:
    name: str
    state: str
    flags: frozenset[str]
    reason: str
    cpus: int
    cpus_allocated: int
    memory_bytes: float
    memory_allocated_bytes: float
    gpus: int
    gpus_allocated: int

    @property
    def responds(self) -> bool:
        return not self.flags & {"NOT_RESPONDING"} and self.state not in ("UNKNOWN", "DOWN")


@dataclass(frozen=True)
class Job:
    id: str
    user: str
    account: str
    partition: str
    state: str
    reason: str
    submitted: float
    started: float
    cpus: int
    gpus: int
    cards: tuple[tuple[str, int], ...]
    """(node, index) of each GPU it holds."""


def fields(line: str) -> dict[str, str]:
    """Key=value pairs of one record; the first of a key counts, and Reason may hold spaces."""
    found: dict[str, str] = {}
    for key, value in re.findall(r"(\w[\w/:]*)=(\S*)", line):
        found.setdefault(key, value)
    return found


def parse_nodes(text: str) -> list[SlurmNode]:
    """One line a node."""
    nodes = []
    for line in text.splitlines():
        if not line.startswith("NodeName="):
            continue
        found = fields(line)
        words = found.get("State", "UNKNOWN").replace("*", "+NOT_RESPONDING").split("+")
        reason = re.search(r" Reason=(.*?)(?: \[\S+@\S+\])?\s*$", line)
        nodes.append(
            SlurmNode(
                name=found["NodeName"],
                state=words[0],
                flags=frozenset(words[1:]),
                reason=reason[1].strip() if reason else "",
                cpus=_int(found.get("CPUTot")),
                cpus_allocated=_int(found.get("CPUAlloc")),
                memory_bytes=_int(found.get("RealMemory")) * 2.0**20,
                memory_allocated_bytes=_int(found.get("AllocMem")) * 2.0**20,
                gpus=_gpus(found.get("Gres", "")),
                gpus_allocated=_gpus(found.get("GresUsed", "")),
            )
        )
    return nodes


def parse_jobs(text: str) -> list[Job]:
    """One line a job; finished ones stay in Slurm's memory for some minutes."""
    jobs = []
    for line in text.splitlines():
        if not line.startswith("JobId="):
            continue
        found = fields(line)
        running = found.get("JobState") in ("RUNNING", "COMPLETING", "SUSPENDED")
        tres = found.get("AllocTRES" if running else "ReqTRES") or found.get("TRES", "")
        gpus = re.search(r"gres/gpu=(\d+)", tres)
        cards = tuple(_cards(line)) if running else ()
        jobs.append(
            Job(
                id=found["JobId"],
                user=found.get("UserId", "").partition("(")[0],
                account=_word(found.get("Account")),
                partition=_word(found.get("Partition")),
                state=found.get("JobState", "UNKNOWN"),
                reason=_word(found.get("Reason")),
                submitted=_time(found.get("SubmitTime")),
                started=_time(found.get("StartTime")),
                cpus=_int(found.get("NumCPUs")),
                gpus=int(gpus[1]) if gpus else len(cards),
                cards=cards,
            )
        )
    return jobs


def _cards(line: str) -> Iterator[tuple[str, int]]:
    for hosts, indices in re.findall(r" Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=\S*?gpu[^ (]*\(IDX:([\d,-]+)\)", line):
        for host in expand(hosts):
            yield from ((host, index) for index in _numbers(indices))


def expand(hosts: str) -> list[str]:
    """Slurm's host lists: n[1-3,7],head."""
    found = []
    for prefix, inside in re.findall(r"([^,\[]+)(?:\[([^\]]*)\])?,?", hosts):
        width = len(inside.partition("-")[0].partition(",")[0])
        found += [f"{prefix}{n:0{width}d}" for n in _numbers(inside)] if inside else [prefix]
    return found


def _numbers(text: str) -> list[int]:
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def _gpus(text: str) -> int:
    """gpu:2, gpu:rtx3090:2(S:0), gpu:1(IDX:0); several kinds separated by commas."""
    return sum(int(n) for n in re.findall(r"gpu(?::[A-Za-z][^:,(]*)?:(\d+)", text))


def _int(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def _word(text: str | None) -> str:
    return "" if text in (None, "(null)", "None") else str(text)


def _time(text: str | None) -> float:
    """Slurm prints the controller's local time."""
    try:
        return datetime.fromisoformat(text or "").timestamp()
    except ValueError:
        return 0.0


# --- families ----------------------------------------------------------------------------------------------------


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"klaster_{name}", text, labels=labels)


def slurm_families(nodes: Sequence[SlurmNode] | None, jobs: Sequence[Job], now: float) -> Iterator[Family]:
    """All that is said of Slurm; `nodes` is None when slurmctld does not answer."""
    up = _gauge("slurm_up", "1 if slurmctld answers.")
    up.add_metric([], float(nodes is not None))
    yield up
    yield from _nodes(nodes or ())
    yield from _jobs(jobs, now)
    yield from _users(jobs)


def _nodes(nodes: Sequence[SlurmNode]) -> Iterator[Family]:
    state = _gauge("slurm_node_state", "1 for the node's state.", "node", "state")
    drained = _gauge(
        "slurm_node_drained", "1 if Slurm gives the node no job, with the reason.", "node", "reason", "ours"
    )
    responds = _gauge("slurm_node_responds", "1 if the node's slurmd answers slurmctld.", "node")
    resources = {
        "slurm_node_cpus": _gauge("slurm_node_cpus", "Processors that Slurm hands out.", "node"),
        "slurm_node_cpus_allocated": _gauge("slurm_node_cpus_allocated", "Processors in use by jobs.", "node"),
        "slurm_node_memory_bytes": _gauge("slurm_node_memory_bytes", "Memory that Slurm hands out.", "node"),
        "slurm_node_memory_allocated_bytes": _gauge("slurm_node_memory_allocated_bytes", "Memory of jobs.", "node"),
        "slurm_node_gpus": _gauge("slurm_node_gpus", "GPUs that Slurm hands out.", "node"),
        "slurm_node_gpus_allocated": _gauge("slurm_node_gpus_allocated", "GPUs in use by jobs.", "node"),
    }
    for node in nodes:
        state.add_metric([node.name, node.state.lower()], 1)
        responds.add_metric([node.name], float(node.responds))
        is_drained = "DRAIN" in node.flags
        # The run's id would make a new series each night; the report has it.
        reason = re.sub(r" run=\S+$", "", node.reason)[:120] if is_drained else ""
        ours = str(node.reason.startswith(OURS)).lower() if is_drained else ""
        drained.add_metric([node.name, reason, ours], float(is_drained))
        for name, family in resources.items():
            family.add_metric([node.name], float(getattr(node, name.removeprefix("slurm_node_"))))
    yield from (state, drained, responds, *resources.values())


def _jobs(jobs: Sequence[Job], now: float) -> Iterator[Family]:
    count = _gauge("jobs", "Jobs that Slurm remembers.", "state", "partition", "account")
    groups = Counter((job.state.lower(), job.partition, job.account) for job in jobs)
    for group, number in sorted(groups.items()):
        count.add_metric(group, number)
    pending = _gauge("jobs_pending", "Jobs that wait, by why.", "partition", "reason")
    for labels, number in sorted(Counter((j.partition, j.reason) for j in jobs if j.state == "PENDING").items()):
        pending.add_metric(labels, number)
    oldest = _gauge("queue_oldest_seconds", "How long the job has waited that waits longest.", "partition")
    longest: dict[str, float] = {}
    for job in jobs:
        waiting = max(0.0, now - job.submitted) if job.state == "PENDING" else 0.0
        longest[job.partition] = max(longest.get(job.partition, 0.0), waiting)
    for partition, seconds in sorted(longest.items()):
        oldest.add_metric([partition], round(seconds))
    yield from (count, pending, oldest)


def _users(jobs: Sequence[Job]) -> Iterator[Family]:
    cpus = _gauge("user_cpus_allocated", "Processors that a user's jobs hold.", "user", "account")
    gpus = _gauge("user_gpus_allocated", "GPUs that a user's jobs hold.", "user", "account")
    card = _gauge("gpu_job_info", "Which job holds a card.", "node", "gpu", "slurm_job", "user", "account")
    held: Counter[tuple[str, str]] = Counter()
    held_gpus: Counter[tuple[str, str]] = Counter()
    for job in jobs:
        if job.state == "RUNNING":
            held[(job.user, job.account)] += job.cpus
            held_gpus[(job.user, job.account)] += job.gpus
            for node, index in job.cards:
                card.add_metric([node, str(index), job.id, job.user, job.account], 1)
    named = {labels for labels, _ in held.most_common(MOST_USERS)}
    for family, counts in ((cpus, held), (gpus, held_gpus)):
        sums: Counter[tuple[str, str]] = Counter()
        for labels, number in counts.items():
            sums[labels if labels in named else ("(others)", "")] += number
        for labels, number in sorted(sums.items()):
            family.add_metric(labels, number)
    yield from (cpus, gpus, card)


class Waits:
    """How long jobs had waited when they began, by partition."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._sums: Counter[str] = Counter()

    def add(self, partition: str, seconds: float) -> None:
        counts = self._counts.setdefault(partition, [0] * (len(WAIT_BUCKETS_S) + 1))
        for place, edge in enumerate((*WAIT_BUCKETS_S, float("inf"))):
            counts[place] += seconds <= edge
        self._sums[partition] += int(seconds)

    def family(self) -> HistogramMetricFamily:
        family = HistogramMetricFamily(
            "klaster_queue_wait_seconds", "Wait of jobs that began since the exporter started.", labels=["partition"]
        )
        edges = [*(str(float(edge)) for edge in WAIT_BUCKETS_S), "+Inf"]
        for partition, counts in sorted(self._counts.items()):
            buckets = list(zip(edges, counts, strict=True))
            family.add_metric([partition], buckets=buckets, sum_value=self._sums[partition])
        return family
