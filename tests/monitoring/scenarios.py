"""What Prometheus sees in each trouble, and which alerts must fire then, and no other."""

from __future__ import annotations

from dataclasses import dataclass, field

STEPS = 100
"""Samples, one a minute: promtool plays all scenarios in seconds then."""


def steady(value: float) -> str:
    return f"{value}x{STEPS}"


def rising(per_15s: float, start: float = 0) -> str:
    return f"{start}+{4 * per_15s:g}x{STEPS}"


def falling(per_15s: float, start: float) -> str:
    return f"{start}-{4 * per_15s:g}x{STEPS}"


CLOCK = rising(15)
DISK = 'device="sda",fstype="ext4",mountpoint="/",node="n1"'
LATER = steady(40 * 86400)
CARD = 'node="n1",gpu="0"'

HEALTHY = {
    **{f'up{{job="node",node="{n}",instance="{n}"}}': steady(1) for n in ("head", "n1", "n2")},
    **{f'klaster_node_reachable{{node="{n}"}}': steady(1) for n in ("head", "n1", "n2")},
    **{f'klaster_mount_responds{{node="{n}",path="/home"}}': steady(1) for n in ("head", "n1", "n2")},
    **{f'klaster_mount_present{{node="{n}",path="/home"}}': steady(1) for n in ("head", "n1", "n2")},
    'klaster_slurm_up{job="klaster"}': steady(1),
    'klaster_slurm_node_responds{node="n1"}': steady(1),
    'klaster_slurm_node_drained{node="n1",reason="",ours=""}': steady(0),
    'node_time_seconds{node="n1"}': CLOCK,
    'node_textfile_mtime_seconds{node="n1",file="/x/klaster.prom"}': CLOCK,
    'klaster_agent_question_succeeded{node="n1",question="time"}': steady(1),
    'klaster_agent_question_succeeded{node="n1",question="gpus"}': steady(1),
    **{
        f'klaster_service_active{{node="{n}",unit="{u}.service"}}': steady(1)
        for n, u in (("n1", "slurmd"), ("n1", "munge"), ("n1", "slapd"), ("n1", "docker-registry"))
    },
    'klaster_firewall_loaded{node="n1"}': steady(1),
    'klaster_certificate_verdict{verdict="FAIL"}': steady(0),
    "klaster_certificate_expiry_timestamp_seconds": LATER,
    'klaster_node_certificate_expiry_timestamp_seconds{node="n1"}': LATER,
    'klaster_tls_expiry_timestamp_seconds{node="n1"}': LATER,
    'klaster_last_success_timestamp_seconds{node="n1",task="nightly"}': CLOCK,
    'klaster_last_success_timestamp_seconds{node="n1",task="backup"}': CLOCK,
    'klaster_time_synchronised{node="n1"}': steady(1),
    f"node_filesystem_avail_bytes{{{DISK}}}": steady(80e9),
    f"node_filesystem_size_bytes{{{DISK}}}": steady(100e9),
    f"node_filesystem_files_free{{{DISK}}}": steady(900_000),
    f"node_filesystem_files{{{DISK}}}": steady(1_000_000),
    'node_md_disks{node="n1",device="md0",state="failed"}': steady(0),
    'klaster_nfs_operations_total{node="n1",path="/home"}': rising(300),
    'klaster_nfs_response_seconds_total{node="n1",path="/home"}': rising(0.3),
    'node_memory_MemAvailable_bytes{node="n1"}': steady(20e9),
    'node_memory_MemTotal_bytes{node="n1"}': steady(24e9),
    'node_pressure_memory_waiting_seconds_total{node="n1"}': rising(0.01),
    'node_pressure_io_waiting_seconds_total{node="n1"}': rising(0.01),
    'node_vmstat_oom_kill{node="n1"}': steady(3),
    'node_edac_uncorrectable_errors_total{node="n1"}': steady(0),
    'node_network_receive_errs_total{node="n1",device="eth0"}': steady(5),
    'node_network_transmit_errs_total{node="n1",device="eth0"}': steady(0),
    'node_network_carrier_changes_total{node="n1",device="eth0"}': steady(2),
    'node_network_speed_bytes{node="n1",device="eth0"}': steady(1.25e8),
    'klaster_link_declared_bytes_per_second{node="n1"}': steady(1.25e8),
    'klaster_gpus_found{node="n1"}': steady(1),
    'klaster_gpus_expected{node="n1"}': steady(1),
    'klaster_gpu_xid_total{node="n1",bus_id="0000:01:00",xid="31"}': rising(1),
    f'klaster_gpu_ecc_errors{{{CARD},kind="uncorrected"}}': steady(0),
    f'klaster_gpu_ecc_errors{{{CARD},kind="corrected"}}': rising(1),
    f'klaster_gpu_remap_trouble{{{CARD},kind="failure"}}': steady(0),
    f'klaster_gpu_remap_trouble{{{CARD},kind="pending"}}': steady(0),
    f"klaster_gpu_temperature_celsius{{{CARD}}}": steady(80),
    f'klaster_gpu_throttled{{{CARD},reason="heat"}}': steady(0),
    f"klaster_gpu_pcie_width{{{CARD}}}": steady(16),
    f"klaster_gpu_pcie_replays_total{{{CARD}}}": steady(2),
    f"klaster_gpu_utilization_ratio{{{CARD}}}": steady(0.9),
    f'klaster_gpu_job_info{{{CARD},slurm_job="7",user="alex",account="a"}}': steady(1),
}
"""A healthy cluster: no alert may fire."""


@dataclass(frozen=True)
class Scenario:
    """`changes` replace series of the healthy cluster (None takes one away); `fires` are the alerts at `at`."""

    name: str
    changes: dict[str, str | None] = field(default_factory=dict)
    fires: tuple[str, ...] = ()
    at: str = "1h30m"


def _one(alert: str, series: str, value: str, **more: str) -> Scenario:
    return Scenario(alert, {series: value}, (alert,), **more)


def _near(alert: str, series: str, value: str) -> Scenario:
    return Scenario(f"{alert}: almost", {series: value})


REACH = 'klaster_node_reachable{{node="{}"}}'
RESPONDS = 'klaster_mount_responds{{node="{}",path="/home"}}'
UNIT = 'klaster_service_active{{node="{}",unit="{}.service"}}'
EXPIRY = "klaster_certificate_expiry_timestamp_seconds"
NODE_EXPIRY = 'klaster_node_certificate_expiry_timestamp_seconds{node="n1"}'
TLS_EXPIRY = 'klaster_tls_expiry_timestamp_seconds{node="n1"}'
AVAILABLE = f"node_filesystem_avail_bytes{{{DISK}}}"
INODES = f"node_filesystem_files_free{{{DISK}}}"
NFS_TIME = 'klaster_nfs_response_seconds_total{node="n1",path="/home"}'
XID = 'klaster_gpu_xid_total{{node="n1",bus_id="0000:01:00",xid="{}"}}'
BUSY = f"klaster_gpu_utilization_ratio{{{CARD}}}"
LONG_AGO = steady(-40 * 3600)

SCENARIOS = (
    Scenario("all is well"),
    # reach and watching
    _one("NodeDown", REACH.format("n1"), steady(0)),
    Scenario("NodeDown: a blink", {REACH.format("n1"): f"1x87 0 1x{STEPS}"}),
    Scenario(
        "ManyNodesDown",
        {REACH.format("n1"): steady(0), REACH.format("n2"): steady(0)},
        ("ManyNodesDown", "NodeDown", "NodeDown"),
    ),
    _one("TargetMissing", 'up{job="node",node="n1",instance="n1"}', steady(0)),
    Scenario("TargetMissing: not yet", {'up{job="node",node="n1",instance="n1"}': f"1x88 0x{STEPS}"}),
    _one("AgentStale", 'node_textfile_mtime_seconds{node="n1",file="/x/klaster.prom"}', rising(15, -200)),
    _near("AgentStale", 'node_textfile_mtime_seconds{node="n1",file="/x/klaster.prom"}', rising(15, -60)),
    _one("AgentQuestionFails", 'klaster_agent_question_succeeded{node="n1",question="time"}', steady(0)),
    Scenario(
        "AgentQuestionFails: once", {'klaster_agent_question_succeeded{node="n1",question="time"}': f"1x88 0x{STEPS}"}
    ),
    # services
    _one("SlurmControllerDown", 'klaster_slurm_up{job="klaster"}', steady(0)),
    Scenario("SlurmControllerDown: nobody says", {'klaster_slurm_up{job="klaster"}': None}, ("SlurmControllerDown",)),
    Scenario(
        "SlurmControllerDown: now no answer, now no metrics",
        {'klaster_slurm_up{job="klaster"}': "1x80 0 stale 0 stale 0 stale 0 stale 0 stale 0"},
        ("SlurmControllerDown",),
    ),
    Scenario("SlurmControllerDown: a restart", {'klaster_slurm_up{job="klaster"}': f"1x88 0 1x{STEPS}"}),
    _one("SlurmdDown", UNIT.format("n1", "slurmd"), steady(0)),
    Scenario("SlurmdDown: a restart", {UNIT.format("n1", "slurmd"): f"1x88 0 1x{STEPS}"}),
    _one("SlurmNodeNotResponding", 'klaster_slurm_node_responds{node="n1"}', steady(0)),
    Scenario("SlurmNodeNotResponding: a blink", {'klaster_slurm_node_responds{node="n1"}': f"1x88 0x{STEPS}"}),
    _one("NodeDrained", 'klaster_slurm_node_drained{node="n1",reason="klaster:x:y",ours="true"}', steady(1)),
    Scenario(
        "NodeDrained: just now",
        {'klaster_slurm_node_drained{node="n1",reason="klaster:x:y",ours="true"}': f"_x82 1x{STEPS}"},
    ),
    _one("ServiceDown", UNIT.format("n1", "munge"), steady(0)),
    Scenario("ServiceDown: a restart", {UNIT.format("n1", "munge"): f"1x88 0 1x{STEPS}"}),
    _one("RegistryDown", UNIT.format("n1", "docker-registry"), steady(0)),
    Scenario("RegistryDown: a restart", {UNIT.format("n1", "docker-registry"): f"1x88 0 1x{STEPS}"}),
    _one("LdapDown", UNIT.format("n1", "slapd"), steady(0)),
    Scenario("LdapDown: a restart", {UNIT.format("n1", "slapd"): f"1x88 0 1x{STEPS}"}),
    _one("FirewallOff", 'klaster_firewall_loaded{node="n1"}', steady(0)),
    Scenario("FirewallOff: while it is loaded anew", {'klaster_firewall_loaded{node="n1"}': f"1x88 0 1x{STEPS}"}),
    # certificates and work by night
    _one("CertificateFailed", 'klaster_certificate_verdict{verdict="FAIL"}', steady(1)),
    Scenario("CertificateFailed: another verdict", {'klaster_certificate_verdict{verdict="INCONCLUSIVE"}': steady(1)}),
    _one("CertificateExpires", EXPIRY, steady(2 * 86400)),
    _near("CertificateExpires", EXPIRY, steady(4 * 86400)),
    _one("NodeCertificateExpires", NODE_EXPIRY, steady(2 * 86400)),
    _near("NodeCertificateExpires", NODE_EXPIRY, steady(4 * 86400)),
    _one("TlsExpires", TLS_EXPIRY, steady(20 * 86400)),
    _near("TlsExpires", TLS_EXPIRY, steady(31 * 86400)),
    _one("NightlyLate", 'klaster_last_success_timestamp_seconds{node="n1",task="nightly"}', LONG_AGO),
    _near("NightlyLate", 'klaster_last_success_timestamp_seconds{node="n1",task="nightly"}', steady(-26 * 3600)),
    _one("BackupLate", 'klaster_last_success_timestamp_seconds{node="n1",task="backup"}', LONG_AGO),
    _near("BackupLate", 'klaster_last_success_timestamp_seconds{node="n1",task="backup"}', steady(-26 * 3600)),
    # time
    _one("ClockOff", 'node_time_seconds{node="n1"}', rising(15, 3)),
    Scenario("ClockOff: behind", {'node_time_seconds{node="n1"}': rising(15, -3)}, ("ClockOff",)),
    _near("ClockOff", 'node_time_seconds{node="n1"}', rising(15, 0.6)),
    _one("TimeNotSynchronised", 'klaster_time_synchronised{node="n1"}', steady(0)),
    Scenario("TimeNotSynchronised: after a boot", {'klaster_time_synchronised{node="n1"}': f"1x82 0x{STEPS}"}),
    # disks and storage
    _one("DiskFull", AVAILABLE, steady(3e9)),
    Scenario("DiskFull: inodes", {INODES: steady(10_000)}, ("DiskFull",)),
    _near("DiskFull", AVAILABLE, steady(6e9)),
    Scenario("DiskFull: memory, not a disk", {AVAILABLE.replace("ext4", "tmpfs"): steady(0)}),
    _one("DiskFillsUp", AVAILABLE, falling(30e6, 40e9)),
    _near("DiskFillsUp", AVAILABLE, falling(3e6, 40e9)),
    _one("RaidDegraded", 'node_md_disks{node="n1",device="md0",state="failed"}', steady(1)),
    Scenario("RaidDegraded: a spare", {'node_md_disks{node="n1",device="md0",state="spare"}': steady(1)}),
    _one("MountMissing", 'klaster_mount_present{node="n1",path="/home"}', steady(0)),
    Scenario("MountMissing: a remount", {'klaster_mount_present{node="n1",path="/home"}': f"1x88 0x{STEPS}"}),
    _one("MountStale", RESPONDS.format("n1"), steady(0)),
    Scenario("MountStale: a slow answer", {RESPONDS.format("n1"): f"1x88 0 1x{STEPS}"}),
    Scenario(
        "StorageDown",
        {RESPONDS.format(n): steady(0) for n in ("n1", "n2")},
        ("MountStale", "MountStale", "StorageDown"),
    ),
    _one("NfsSlow", NFS_TIME, rising(90)),
    _near("NfsSlow", NFS_TIME, rising(6)),
    # memory
    _one("MemoryPressure", 'node_memory_MemAvailable_bytes{node="n1"}', steady(1e9)),
    Scenario(
        "MemoryPressure: waiting",
        {'node_pressure_memory_waiting_seconds_total{node="n1"}': rising(6)},
        ("MemoryPressure",),
    ),
    _near("MemoryPressure", 'node_memory_MemAvailable_bytes{node="n1"}', steady(2e9)),
    _one("OutOfMemoryKill", 'node_vmstat_oom_kill{node="n1"}', f"3x85 4x{STEPS}"),
    Scenario("OutOfMemoryKill: long ago", {'node_vmstat_oom_kill{node="n1"}': f"3x5 4x{STEPS}"}),
    _one("MemoryErrors", 'node_edac_uncorrectable_errors_total{node="n1"}', f"0x85 1x{STEPS}"),
    Scenario("MemoryErrors: corrected", {'node_edac_correctable_errors_total{node="n1"}': f"0x85 1x{STEPS}"}),
    # network
    _one("LinkErrors", 'node_network_receive_errs_total{node="n1",device="eth0"}', rising(5)),
    _near("LinkErrors", 'node_network_receive_errs_total{node="n1",device="eth0"}', rising(0.5)),
    _one("LinkFlaps", 'node_network_carrier_changes_total{node="n1",device="eth0"}', rising(1)),
    Scenario(
        "LinkFlaps: a cable is swapped",
        {'node_network_carrier_changes_total{node="n1",device="eth0"}': f"2x85 4x{STEPS}"},
    ),
    _one("LinkSlow", 'node_network_speed_bytes{node="n1",device="eth0"}', steady(1.25e7)),
    Scenario("LinkSlow: a slow second port", {'node_network_speed_bytes{node="n1",device="eth1"}': steady(1.25e7)}),
    # GPUs
    _one("GpuFellOffBus", 'klaster_gpu_fallen_total{node="n1",bus_id="0000:01:00"}', steady(1)),
    Scenario("GpuFellOffBus: another card's log", {'klaster_gpu_fallen_total{node="n1",bus_id="0"}': steady(0)}),
    _one("GpuMissing", 'klaster_gpus_found{node="n1"}', steady(0)),
    Scenario("GpuMissing: one more than declared", {'klaster_gpus_found{node="n1"}': steady(2)}),
    _one("GpuDriverHangs", 'klaster_agent_question_succeeded{node="n1",question="gpus"}', steady(0)),
    Scenario("GpuDriverHangs: once", {'klaster_agent_question_succeeded{node="n1",question="gpus"}': "1x88 0 1x9"}),
    _one("GpuXid", XID.format("63"), f"_x50 1x{STEPS}"),
    Scenario("GpuXid: seven hours ago", {XID.format("63"): f"_x5 1x{STEPS}"}, at="7h30m"),
    Scenario("GpuXid: a program's fault", {XID.format("13"): f"_x50 1x{STEPS}"}),
    _one("GpuEcc", f'klaster_gpu_ecc_errors{{{CARD},kind="uncorrected"}}', steady(1)),
    Scenario(
        "GpuEcc: a row without a spare", {f'klaster_gpu_remap_trouble{{{CARD},kind="failure"}}': steady(1)}, ("GpuEcc",)
    ),
    Scenario("GpuEcc: corrected ones", {f'klaster_gpu_ecc_errors{{{CARD},kind="corrected"}}': steady(900)}),
    _one("GpuRemapPending", f'klaster_gpu_remap_trouble{{{CARD},kind="pending"}}', steady(1)),
    Scenario("GpuRemapPending: just now", {f'klaster_gpu_remap_trouble{{{CARD},kind="pending"}}': f"0x87 1x{STEPS}"}),
    _one("GpuHot", f"klaster_gpu_temperature_celsius{{{CARD}}}", steady(91)),
    _near("GpuHot", f"klaster_gpu_temperature_celsius{{{CARD}}}", steady(86)),
    _one("GpuThrottled", f'klaster_gpu_throttled{{{CARD},reason="heat"}}', steady(1)),
    Scenario("GpuThrottled: a moment", {f'klaster_gpu_throttled{{{CARD},reason="heat"}}': f"0x87 1x{STEPS}"}),
    _one("GpuLinkDegraded", f"klaster_gpu_pcie_width{{{CARD}}}", f"16x25 8x{STEPS}"),
    Scenario(
        "GpuLinkDegraded: replays", {f"klaster_gpu_pcie_replays_total{{{CARD}}}": rising(60)}, ("GpuLinkDegraded",)
    ),
    Scenario("GpuLinkDegraded: always had eight lanes", {f"klaster_gpu_pcie_width{{{CARD}}}": steady(8)}),
    _one("GpuIdleAllocated", BUSY, steady(0.0)),
    Scenario(
        "GpuIdleAllocated: a free card",
        {BUSY: steady(0.0), f'klaster_gpu_job_info{{{CARD},slurm_job="7",user="alex",account="a"}}': None},
    ),
    Scenario("GpuIdleAllocated: works now and then", {BUSY: f"0x10 0.9 0x25 0.9 0x25 0.9 0x25 0.9 0x{STEPS}"}),
    Scenario("GpuWaitsForData", {BUSY: steady(0.3), NFS_TIME: rising(12)}, ("GpuWaitsForData",)),
    Scenario(
        "GpuWaitsForData: its own disk",
        {BUSY: steady(0.3), 'node_pressure_io_waiting_seconds_total{node="n1"}': rising(9)},
        ("GpuWaitsForData",),
    ),
    Scenario("GpuWaitsForData: slow for another reason", {BUSY: steady(0.3)}),
)
