"""What the numbers in NVIDIA's kernel messages (Xid) mean: a broken part, a program's fault, or nobody knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from validation.checks.gpu_smi import KernelEvent


@dataclass(frozen=True)
class Meaning:
    severity: Literal["hardware", "program", "unknown"]
    cause: str = ""
    remedy: str = ""


_LOST = Meaning("hardware", "gpu-lost", "reboot once; if it comes back, reseat card and power, then replace the card")
_MEMORY = Meaning("hardware", "gpu-ecc", "reset the card on the drained node; if it comes back, replace it (RMA)")
_WORN = Meaning("hardware", "gpu-memory-worn", "replace the card (RMA)")
_RESET = Meaning("hardware", "gpu-reset-due", "drain the node and reset the card (nvidia-smi -r) or reboot")
_LINK = Meaning("hardware", "nvlink", "nvidia-smi nvlink -s and -e; reseat the bridge; look at the fabric manager")
_FIRMWARE = Meaning("hardware", "driver", "reboot; if it comes back, another driver version; then replace the card")
_PROGRAM = Meaning("program")

# NVIDIA's "Xid errors" (GPU deployment and management documentation).
_BY_NUMBER: dict[int, Meaning] = {
    **dict.fromkeys((48, 94, 95), _MEMORY),
    64: _WORN,
    **dict.fromkeys((63, 140), _RESET),
    79: _LOST,
    **dict.fromkeys((74, 121, 155), _LINK),
    **dict.fromkeys((38, 46, 56, 57, 61, 62, 92, 110, 119, 120, 123, 136, 143), _FIRMWARE),
    **dict.fromkeys((13, 31, 32, 43, 44, 45, 68, 69, 93, 109, 137), _PROGRAM),
}
_NVLINK5 = range(144, 151)
"""They say themselves whether they are fatal."""


def meaning(event: KernelEvent) -> Meaning:
    """What a message means; one without a number tells that the card is lost."""
    if event.xid is None:
        return _LOST
    if event.xid in _NVLINK5:
        if event.fatal is None:
            return Meaning("unknown")
        return _LINK if event.fatal else _PROGRAM
    if event.xid == 154:  # the driver's own recommendation: "changed from 0x0 (None) to 0x4 (Drain and Reset)"
        return _PROGRAM if event.text.rstrip(" .").endswith("(None)") else _RESET
    if event.xid == 31 and "fallen off the bus" in event.text:
        return _LOST
    return _BY_NUMBER.get(event.xid, Meaning("unknown"))
