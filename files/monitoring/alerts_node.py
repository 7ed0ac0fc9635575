"""Alerts about a node's clock, disks, storage, memory and network."""

from __future__ import annotations

from files.monitoring.alert_model import NODE, Alert

REAL_DISKS = 'fstype!~"tmpfs|iso9660|nfs.*"'
NFS_SECONDS = "rate(klaster_nfs_response_seconds_total[5m])"
ALERTS = (
    # --- time
    Alert(
        "ClockOff",
        "abs(node_time_seconds - timestamp(node_time_seconds)) > 1",
        "2m",
        "critical",
        "time",
        f"the clock of {NODE} is off by {{{{ $value | humanizeDuration }}}}",
        "munge, TLS, LDAP and `make` break one after the other when clocks differ.",
        "`chronyc sources` on the node; `chronyc makestep` sets the clock.",
    ),
    Alert(
        "TimeNotSynchronised",
        "klaster_time_synchronised == 0",
        "10m",
        "warning",
        "time",
        f"chrony on {NODE} follows no source",
        "The clock is right for now and drifts by some seconds a day.",
        "`chronyc sources` on the node: can it reach the controller's port 123/udp?",
    ),
    # --- disks and storage
    Alert(
        "DiskFull",
        f"node_filesystem_avail_bytes{{{REAL_DISKS}}} / node_filesystem_size_bytes < 0.05 "
        f"or node_filesystem_files_free{{{REAL_DISKS}}} / (node_filesystem_files > 0) < 0.02",
        "2m",
        "critical",
        "disk",
        f"{{{{ $labels.mountpoint }}}} on {NODE} is full ({{{{ $value | humanizePercentage }}}} left)",
        "Space or inodes are used up: jobs and daemons fail in strange ways from now on.",
        "`df -h`, `df -i`, then `du -x --max-depth=2` there.",
    ),
    Alert(
        "DiskFillsUp",
        f"predict_linear(node_filesystem_avail_bytes{{{REAL_DISKS}}}[30m], 8 * 3600) < 0 "
        "and node_filesystem_avail_bytes / node_filesystem_size_bytes < 0.5",
        "15m",
        "warning",
        "disk",
        f"{{{{ $labels.mountpoint }}}} on {NODE} is full within eight hours at this rate",
        "Something writes steadily: a job's output, a log, a core dump.",
        "Find the largest young files there, and ask whose they are before it is full.",
    ),
    Alert(
        "RaidDegraded",
        'node_md_disks{state="failed"} > 0',
        "1m",
        "critical",
        "disk",
        f"a disk of {{{{ $labels.device }}}} on {NODE} failed",
        "The array still works, without a reserve.",
        "`cat /proc/mdstat`, replace the disk.",
    ),
    Alert(
        "MountMissing",
        "klaster_mount_present == 0",
        "2m",
        "critical",
        "storage",
        f"{{{{ $labels.path }}}} is not mounted on {NODE}",
        "The folder is there, but empty: jobs would write to the node's own disk.",
        "`mount` it and look at what the mount says; `systemctl --failed`.",
    ),
    Alert(
        "MountStale",
        "klaster_mount_responds == 0 and klaster_mount_present == 1",
        "1m",
        "critical",
        "storage",
        f"{{{{ $labels.path }}}} on {NODE} hangs",
        "The file server does not answer this node: whatever touches the folder hangs with it.",
        "`ping` the file server from the node; if others are fine, unmount with `umount -l` and mount again.",
    ),
    Alert(
        "StorageDown",
        "count by (path) (klaster_mount_responds == 0) >= 2 "
        "and count by (path) (klaster_mount_responds == 0) / count by (path) (klaster_mount_responds) > 0.5",
        "1m",
        "critical",
        "storage",
        "{{ $labels.path }} does not answer on {{ $value }} nodes",
        "The file server or its network is down: no node is to blame.",
        "Look at the file server; nodes go on by themselves when it is back.",
        scope="cluster",
    ),
    Alert(
        "NfsSlow",
        f"{NFS_SECONDS} / rate(klaster_nfs_operations_total[5m]) > 0.2 and rate(klaster_nfs_operations_total[5m]) > 1",
        "10m",
        "warning",
        "storage",
        f"{{{{ $labels.path }}}} on {NODE} takes {{{{ $value | humanizeDuration }}}} an operation",
        "Everybody who reads or writes there waits.",
        "The dashboard *Storage and data* shows who; on the server `iostat -x 5`.",
    ),
    # --- memory
    Alert(
        "MemoryPressure",
        "node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes < 0.05 "
        "or rate(node_pressure_memory_waiting_seconds_total[5m]) > 0.2",
        "5m",
        "warning",
        "memory",
        f"{NODE} is short of memory",
        "Programs wait for memory, and the kernel will soon end one of them.",
        "`ps aux --sort=-rss | head` on the node; whose job is it, and did it ask Slurm for that much?",
    ),
    Alert(
        "OutOfMemoryKill",
        "increase(node_vmstat_oom_kill[10m]) > 0",
        "0s",
        "info",
        "memory",
        f"the kernel ended a program on {NODE} for want of memory",
        "A job, or a daemon, is gone.",
        "`journalctl -k -g 'Out of memory'` on the node says which.",
    ),
    Alert(
        "MemoryErrors",
        "increase(node_edac_uncorrectable_errors_total[1d]) > 0",
        "0s",
        "critical",
        "memory",
        f"{NODE} has uncorrectable memory errors",
        "A memory module is broken; results of this node can't be trusted.",
        "Drain the node, find the module with `edac-util -v`, replace it.",
    ),
    # --- network
    Alert(
        "LinkErrors",
        "rate(node_network_receive_errs_total[10m]) + rate(node_network_transmit_errs_total[10m]) > 0.1",
        "5m",
        "warning",
        "network",
        f"{{{{ $labels.device }}}} on {NODE} loses packets",
        "Broken frames: a cable, a plug, a transceiver, or a switch port.",
        "Swap the cable, then the port; `ethtool -S` shows which kind of error.",
    ),
    Alert(
        "LinkFlaps",
        "increase(node_network_carrier_changes_total[15m]) >= 4",
        "0s",
        "warning",
        "network",
        f"the link of {{{{ $labels.device }}}} on {NODE} goes up and down",
        "Every flap stalls collectives for seconds.",
        "Reseat or swap the cable; look at the switch port's log.",
    ),
    Alert(
        "LinkSlow",
        "max by (node) (node_network_speed_bytes > 0) < klaster_link_declared_bytes_per_second * 0.99",
        "5m",
        "warning",
        "network",
        f"{NODE} has no link of its declared speed",
        "The port negotiated less than the inventory says: most often a cable with a broken pair.",
        "`ethtool` on the interface; swap the cable.",
    ),
)
