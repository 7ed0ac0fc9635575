"""Alerts about GPUs."""

from __future__ import annotations

from files.monitoring.alert_model import NODE, Alert

HARDWARE_XIDS = 'xid=~"48|62|63|64|74|79|92|94|95|110|119|120|136|140|143|144|145|146|147|148|149|150|154"'
"""Xids that speak of the card, its memory or its links; others (13, 31, 43 …) are most often a program's fault."""
XIDS = f"klaster_gpu_xid_total{{{HARDWARE_XIDS}}}"
NFS_SECONDS = "rate(klaster_nfs_response_seconds_total[5m])"
ALERTS = (
    # --- GPUs
    Alert(
        "GpuFellOffBus",
        "klaster_gpu_fallen_total > 0",
        "0s",
        "critical",
        "gpu",
        f"GPU {{{{ $labels.bus_id }}}} of {NODE} fell off the bus",
        "The card does not answer PCIe any more; jobs on the node that use it hang.",
        "Drain the node, power it off and on; again within days: reseat, check its power cable, replace it.",
    ),
    Alert(
        "GpuMissing",
        "klaster_gpus_found < klaster_gpus_expected",
        "2m",
        "critical",
        "gpu",
        f"{NODE} shows {{{{ $value }}}} GPUs, fewer than it must have",
        "A card is not seen by the driver, or there is no driver.",
        "`lspci -d 10de:` against `nvidia-smi -L`; then the kernel log.",
    ),
    Alert(
        "GpuDriverHangs",
        'klaster_agent_question_succeeded{question="gpus"} == 0',
        "2m",
        "critical",
        "gpu",
        f"nvidia-smi on {NODE} fails or hangs",
        "The driver does not answer: often after an upgrade without a reboot, or when a card is dying.",
        "`dmesg | grep NVRM`; a version mismatch of driver and library needs a reboot.",
    ),
    Alert(
        "GpuXid",
        f"{XIDS} - ({XIDS} offset 6h or {XIDS} * 0) > 0",
        "0s",
        "warning",
        "gpu",
        f"GPU {{{{ $labels.bus_id }}}} of {NODE} reported Xid {{{{ $labels.xid }}}}",
        "The driver reports a fault of the card, its memory or its links in the last six hours.",
        "Look it up in NVIDIA's list of Xids. 48, 63, 64, 94, 95: memory. 74, 144–150: NVLink. 79: off the bus.",
    ),
    Alert(
        "GpuEcc",
        'klaster_gpu_ecc_errors{kind="uncorrected"} > 0 or klaster_gpu_remap_trouble{kind="failure"} == 1',
        "0s",
        "critical",
        "gpu",
        f"GPU {{{{ $labels.gpu }}}} of {NODE} has uncorrectable memory errors",
        "Results of this card can't be trusted.",
        "Drain the node and reset the card; again, or `kind` is failure: replace the card.",
    ),
    Alert(
        "GpuRemapPending",
        'klaster_gpu_remap_trouble{kind="pending"} == 1',
        "5m",
        "warning",
        "gpu",
        f"GPU {{{{ $labels.gpu }}}} of {NODE} waits for a reset",
        "A row of its memory is to be replaced; that happens at the next reset.",
        "Drain the node when its jobs are done, reboot it.",
    ),
    Alert(
        "GpuHot",
        "klaster_gpu_temperature_celsius > 87",
        "5m",
        "warning",
        "gpu",
        f"GPU {{{{ $labels.gpu }}}} of {NODE} has {{{{ $value }}}} °C",
        "It will slow down soon, and age.",
        "Fans, dust, room temperature, the neighbour card's exhaust.",
    ),
    Alert(
        "GpuThrottled",
        "klaster_gpu_throttled == 1",
        "5m",
        "warning",
        "gpu",
        f"GPU {{{{ $labels.gpu }}}} of {NODE} is slowed down ({{{{ $labels.reason }}}})",
        "The card protects itself; every job that spans nodes waits for this one.",
        "heat: cooling. power-brake: the power supply. hardware: both, then the card.",
    ),
    Alert(
        "GpuLinkDegraded",
        "klaster_gpu_pcie_width < max_over_time(klaster_gpu_pcie_width[7d]) "
        "or rate(klaster_gpu_pcie_replays_total[15m]) > 1",
        "10m",
        "warning",
        "gpu",
        f"the PCIe link of GPU {{{{ $labels.gpu }}}} of {NODE} is worse than it was",
        "Lanes are lost, or packets are sent again: copies to and from the card are slow.",
        "Reseat the card or its riser; then another slot.",
    ),
    Alert(
        "GpuIdleAllocated",
        "max_over_time(klaster_gpu_utilization_ratio[30m]) < 0.05 and on (node, gpu) klaster_gpu_job_info",
        "30m",
        "info",
        "gpu",
        f"GPU {{{{ $labels.gpu }}}} of {NODE} is held by a job and does nothing",
        "Somebody else could use it: a forgotten notebook, a hung job, a program that never found the card.",
        "The dashboard *GPUs* shows the job and its user: ask them.",
    ),
    Alert(
        "GpuWaitsForData",
        "avg_over_time(klaster_gpu_utilization_ratio[15m]) < 0.5 and on (node, gpu) klaster_gpu_job_info "
        f"and on (node) (sum by (node) ({NFS_SECONDS}) > 0.5 "
        "or rate(node_pressure_io_waiting_seconds_total[5m]) > 0.3)",
        "10m",
        "info",
        "gpu",
        f"GPU {{{{ $labels.gpu }}}} of {NODE} waits for data",
        "The card works less than half of the time while its node waits for storage: data comes too slowly.",
        "Copy the data set to the node's scratch first, more loader workers, larger files.",
    ),
)
