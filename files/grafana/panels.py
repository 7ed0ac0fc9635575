"""What the dashboards show: a table of panels and queries, without a word about Grafana's format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NO_GPU = "no GPU in the lab"
NO_NFS = "the lab's nodes have no NFS mount"
QUIET = "nothing wrong in a healthy lab: no such series or value until something is"
NO_WAIT = "no job has begun since the exporter started"
NO_PRESSURE = "the lab's kernel may be built without pressure-stall information"
NO_ERRORS = "virtual links have no such counters in every kernel"

Kind = Literal["stat", "time", "table", "bars", "matrix"]


@dataclass(frozen=True)
class Panel:
    """One panel. `lab_lacks` says why the rehearsal lab may have no data for it; empty: it must have."""

    title: str
    expr: str
    legend: str = ""
    kind: Kind = "time"
    unit: str = "short"
    width: int = 8
    """Of 24 columns."""
    about: str = ""
    lab_lacks: str = ""


@dataclass(frozen=True)
class Board:
    uid: str
    title: str
    about: str
    panels: tuple[Panel, ...]
    by_node: bool = False
    """It has a choice of nodes; queries use it as node=~"$node"."""


NODE = 'node=~"$node"'
DISKS = 'fstype!~"tmpfs|iso9660"'
ALERTS = 'sort_desc(count by (severity, alertname, node) (ALERTS{alertstate="firing"}))'

BOARDS = (
    Board(
        "klaster-cluster",
        "Cluster",
        "The one look: is the cluster healthy, who uses what, what slows people down?",
        (
            Panel("Alerts now", 'count(ALERTS{alertstate="firing"}) or vector(0)', kind="stat", width=4),
            Panel("Nodes that answer", "sum(klaster_node_reachable)", kind="stat", width=4),
            Panel("Nodes in service", "count(klaster_slurm_node_drained == 0)", kind="stat", width=4, lab_lacks=QUIET),
            Panel("Jobs running", 'sum(klaster_jobs{state="running"}) or vector(0)', kind="stat", width=4),
            Panel("Jobs waiting", 'sum(klaster_jobs{state="pending"}) or vector(0)', kind="stat", width=4),
            Panel("Certified", "klaster_certificate_certified", "{{substrate}}", "stat", width=4),
            Panel("What is wrong", ALERTS, kind="table", width=12, lab_lacks=QUIET),
            Panel(
                "Nodes out of service, and why",
                "klaster_slurm_node_drained == 1",
                kind="table",
                width=12,
                lab_lacks=QUIET,
            ),
            Panel(
                "Processors in use",
                "sum(klaster_slurm_node_cpus_allocated) / sum(klaster_slurm_node_cpus)",
                "by jobs",
                unit="percentunit",
            ),
            Panel(
                "GPUs in use",
                "sum(klaster_slurm_node_gpus_allocated) / (sum(klaster_slurm_node_gpus) > 0)",
                "by jobs",
                unit="percentunit",
                lab_lacks=NO_GPU,
            ),
            Panel("Who holds processors", "topk(10, klaster_user_cpus_allocated)", "{{user}}", lab_lacks=NO_WAIT),
            Panel(
                "Work of each node",
                '1 - avg by (node) (rate(node_cpu_seconds_total{mode="idle"}[5m]))',
                "{{node}}",
                unit="percentunit",
                width=12,
            ),
            Panel(
                "Network of each node, received",
                "sum by (node) (rate(node_network_receive_bytes_total[5m]))",
                "{{node}}",
                unit="Bps",
                width=12,
            ),
        ),
    ),
    Board(
        "klaster-node",
        "Node",
        "One node, or some side by side.",
        (
            Panel("Runs since", f"node_time_seconds{{{NODE}}} - node_boot_time_seconds", "{{node}}", "stat", "s", 6),
            Panel("Slurm's state", f"klaster_slurm_node_state{{{NODE}}}", "{{node}} {{state}}", "stat", width=6),
            Panel(
                "Clock against the controller",
                f"node_time_seconds{{{NODE}}} - timestamp(node_time_seconds)",
                "{{node}}",
                unit="s",
                width=6,
            ),
            Panel("Services", f"klaster_service_active{{{NODE}}}", "{{node}} {{unit}}", "bars", width=6),
            Panel(
                "Processors",
                f'sum by (node, mode) (rate(node_cpu_seconds_total{{{NODE},mode!="idle"}}[5m]))',
                "{{node}} {{mode}}",
            ),
            Panel("Load", f"node_load1{{{NODE}}}", "{{node}}"),
            Panel("Memory free", f"node_memory_MemAvailable_bytes{{{NODE}}}", "{{node}}", unit="bytes"),
            Panel(
                "Waiting for memory",
                f"rate(node_pressure_memory_waiting_seconds_total{{{NODE}}}[5m])",
                "{{node}}",
                unit="percentunit",
                lab_lacks=NO_PRESSURE,
            ),
            Panel(
                "Disk free",
                f"node_filesystem_avail_bytes{{{NODE},{DISKS}}} / node_filesystem_size_bytes",
                "{{node}} {{mountpoint}}",
                unit="percentunit",
            ),
            Panel(
                "Disk reads and writes",
                f"rate(node_disk_read_bytes_total{{{NODE}}}[5m]) + rate(node_disk_written_bytes_total{{{NODE}}}[5m])",
                "{{node}} {{device}}",
                unit="Bps",
            ),
            Panel(
                "Network",
                f"rate(node_network_transmit_bytes_total{{{NODE}}}[5m])",
                "{{node}} {{device}} sent",
                unit="Bps",
            ),
            Panel(
                "Network errors",
                f"rate(node_network_receive_errs_total{{{NODE}}}[10m])",
                "{{node}} {{device}}",
                lab_lacks=NO_ERRORS,
            ),
            Panel(
                "Temperatures",
                f"node_hwmon_temp_celsius{{{NODE}}}",
                "{{node}} {{chip}}",
                unit="celsius",
                lab_lacks="virtual machines have no sensors",
            ),
        ),
        by_node=True,
    ),
    Board(
        "klaster-gpus",
        "GPUs",
        "Each card: is it healthy, busy, and whose is it?",
        (
            Panel("Cards", f"sum(klaster_gpus_found{{{NODE}}})", kind="stat", width=6, lab_lacks=NO_GPU),
            Panel("Cards that must be there", f"sum(klaster_gpus_expected{{{NODE}}})", kind="stat", width=6),
            Panel("Who holds which card", f"klaster_gpu_job_info{{{NODE}}}", kind="table", width=12, lab_lacks=NO_GPU),
            Panel(
                "Work",
                f"klaster_gpu_utilization_ratio{{{NODE}}}",
                "{{node}} {{gpu}}",
                unit="percentunit",
                lab_lacks=NO_GPU,
            ),
            Panel(
                "Memory in use",
                f"klaster_gpu_memory_used_bytes{{{NODE}}} / klaster_gpu_memory_bytes",
                "{{node}} {{gpu}}",
                unit="percentunit",
                lab_lacks=NO_GPU,
            ),
            Panel(
                "Temperature",
                f"klaster_gpu_temperature_celsius{{{NODE}}}",
                "{{node}} {{gpu}}",
                unit="celsius",
                lab_lacks=NO_GPU,
            ),
            Panel("Power", f"klaster_gpu_power_watts{{{NODE}}}", "{{node}} {{gpu}}", unit="watt", lab_lacks=NO_GPU),
            Panel("Slowed down", f"klaster_gpu_throttled{{{NODE}}}", "{{node}} {{gpu}} {{reason}}", lab_lacks=NO_GPU),
            Panel("Memory errors", f"klaster_gpu_ecc_errors{{{NODE}}}", "{{node}} {{gpu}} {{kind}}", lab_lacks=NO_GPU),
            Panel("Driver errors (Xid)", f"klaster_gpu_xid_total{{{NODE}}}", kind="table", lab_lacks=NO_GPU),
            Panel(
                "Memory by user and job",
                f"klaster_gpu_process_memory_bytes{{{NODE}}}",
                "{{user}} {{slurm_job}}",
                unit="bytes",
                lab_lacks=NO_GPU,
            ),
            Panel("PCIe lanes", f"klaster_gpu_pcie_width{{{NODE}}}", "{{node}} {{gpu}}", lab_lacks=NO_GPU),
        ),
        by_node=True,
    ),
    Board(
        "klaster-jobs",
        "Jobs and people",
        "What runs, what waits and why, and who uses how much.",
        (
            Panel("Jobs", "sum by (state) (klaster_jobs)", "{{state}}", width=12, lab_lacks=NO_WAIT),
            Panel(
                "Jobs by account",
                'sum by (account) (klaster_jobs{state="running"})',
                "{{account}}",
                width=12,
                lab_lacks=NO_WAIT,
            ),
            Panel("Why jobs wait", "sum by (reason) (klaster_jobs_pending)", "{{reason}}", width=12, lab_lacks=QUIET),
            Panel(
                "Longest wait now",
                "max by (partition) (klaster_queue_oldest_seconds)",
                "{{partition}}",
                unit="s",
                width=12,
                lab_lacks=NO_WAIT,
            ),
            Panel(
                "Wait before the start, nine of ten jobs",
                "histogram_quantile(0.9, sum by (le, partition) (increase(klaster_queue_wait_seconds_bucket[1d])))",
                "{{partition}}",
                unit="s",
                lab_lacks=NO_WAIT,
            ),
            Panel("Processors by user", "sum by (user) (klaster_user_cpus_allocated)", "{{user}}", lab_lacks=NO_WAIT),
            Panel("GPUs by user", "sum by (user) (klaster_user_gpus_allocated)", "{{user}}", lab_lacks=NO_WAIT),
            Panel("Memory of jobs", "klaster_slurm_node_memory_allocated_bytes", "{{node}}", unit="bytes", width=12),
            Panel("Processors of jobs", "klaster_slurm_node_cpus_allocated", "{{node}}", width=12),
        ),
    ),
    Board(
        "klaster-storage",
        "Storage and data",
        "Are the shared folders there, fast, and with space left; do GPUs wait for them?",
        (
            Panel("Mounted", "klaster_mount_present", "{{node}} {{path}}", "bars", width=12),
            Panel("Answering", "klaster_mount_responds", "{{node}} {{path}}", "bars", width=12),
            Panel(
                "Time of an NFS operation",
                "rate(klaster_nfs_response_seconds_total[5m]) / rate(klaster_nfs_operations_total[5m])",
                "{{node}} {{path}}",
                unit="s",
                lab_lacks=NO_NFS,
            ),
            Panel(
                "NFS operations",
                "rate(klaster_nfs_operations_total[5m])",
                "{{node}} {{path}}",
                unit="ops",
                lab_lacks=NO_NFS,
            ),
            Panel(
                "NFS requests sent again",
                "rate(klaster_nfs_retransmissions_total[5m])",
                "{{node}} {{path}}",
                unit="ops",
                lab_lacks=NO_NFS,
            ),
            Panel(
                "Disks: space left",
                f"node_filesystem_avail_bytes{{{DISKS}}} / node_filesystem_size_bytes",
                "{{node}} {{mountpoint}}",
                unit="percentunit",
                width=12,
            ),
            Panel(
                "Waiting for disks",
                "rate(node_pressure_io_waiting_seconds_total[5m])",
                "{{node}}",
                unit="percentunit",
                width=12,
                lab_lacks=NO_PRESSURE,
            ),
            Panel(
                "GPUs that wait while storage is slow",
                "avg_over_time(klaster_gpu_utilization_ratio[15m]) < 0.5 and on (node, gpu) klaster_gpu_job_info",
                "{{node}} {{gpu}}",
                unit="percentunit",
                width=24,
                lab_lacks=NO_GPU,
            ),
        ),
    ),
    Board(
        "klaster-certification",
        "Certification",
        "What was proven, when, and how it changes: verdicts, the matrix of pairs, scaling.",
        (
            Panel("Verdict of the last whole run", "klaster_certificate_verdict == 1", "{{verdict}}", "stat", width=6),
            Panel("Days left", "(klaster_certificate_expiry_timestamp_seconds - time()) / 86400", kind="stat", width=6),
            Panel("Nodes with a certificate", "sum(klaster_node_certified)", kind="stat", width=6),
            Panel(
                "Nights since the last nightly run",
                '(time() - klaster_last_success_timestamp_seconds{task="nightly"}) / 86400',
                kind="stat",
                width=6,
            ),
            Panel("Culprits of the last run", "klaster_culprit_info", kind="table", width=24, lab_lacks=QUIET),
            Panel(
                "Pairs: measured ÷ declared bandwidth",
                "klaster_pair_bandwidth_ratio",
                kind="matrix",
                unit="percentunit",
                width=12,
            ),
            Panel(
                "Pairs: latency, 99 of 100",
                'klaster_pair_latency_seconds{percentile="99"}',
                kind="matrix",
                unit="s",
                width=12,
            ),
            Panel(
                "Slowest link of each node over time", "klaster_node_slowest_link_ratio", "{{node}}", unit="percentunit"
            ),
            Panel(
                "Bus bandwidth over time",
                "klaster_collective_bus_bandwidth_bytes_per_second",
                "{{op}} {{message_bytes}} on {{nodes}}",
                unit="Bps",
            ),
            Panel("Samples a second over time", "klaster_training_samples_per_second", "{{nodes}} nodes"),
            Panel(
                "Speed-up over one node (a rehearsal's says nothing)",
                "klaster_training_samples_per_second / on (cluster) group_left () "
                'klaster_training_samples_per_second{nodes="1"}',
                "{{nodes}} nodes",
            ),
            Panel(
                "A step's parts", 'klaster_training_step_seconds{part!="all"}', "{{nodes}}: {{node}} {{part}}", unit="s"
            ),
            Panel("Length of a run", "klaster_stage_duration_seconds", "{{stage}}", unit="s"),
        ),
    ),
)
