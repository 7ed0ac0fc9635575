"""The hardware lock: what discovery found in each node, kept beside the inventory for a person to commit."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from inventory.errors import InventoryError

SIMULATED = "SIMULATED-GPU-"
"""Begin of the UUID of a card that the rehearsal lab plays from a recording; a real one begins with GPU-."""


class _Found(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FoundGpu(_Found):
    index: int
    model: str
    uuid: str
    memory_mib: int
    bus_id: str


class FoundNic(_Found):
    name: str
    speed_mbps: int | None = Field(description="None where the driver does not say (virtual devices).")
    mtu: int
    address: str = Field(description="First IPv4 address, or an empty text.")


class FoundDisk(_Found):
    name: str
    size_gib: int
    rotational: bool
    model: str


class FoundNode(_Found):
    """One node as its kernel reports it; nothing in here changes without a hand on the machine."""

    architecture: str
    virtualisation: str = Field(description="systemd-detect-virt's word: none, kvm, systemd-nspawn, uml, …")
    distribution: str = Field(description="os-release ID, e.g. debian.")
    release: str = Field(description="os-release VERSION_ID, e.g. 13.")
    cpu_model: str
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    memory_mib: int = Field(description="MemTotal.")
    gpus: tuple[FoundGpu, ...]
    nics: tuple[FoundNic, ...]
    disks: tuple[FoundDisk, ...]
    cgroup_controllers: tuple[str, ...] = Field(description="cgroup v2 controllers that a service can use.")

    @property
    def cpus(self) -> int:
        return self.sockets * self.cores_per_socket * self.threads_per_core

    @property
    def simulated(self) -> bool:
        """True if any card is a recording: such a node computes on its processor."""
        return any(gpu.uuid.startswith(SIMULATED) for gpu in self.gpus)

    @property
    def sha256(self) -> str:
        """Identity of this hardware: a certificate is void when it changes."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


class HardwareLock(_Found):
    nodes: dict[str, FoundNode] = {}

    @property
    def simulated(self) -> bool:
        """True if any card is a recording: what is found out about such a cluster is a simulation."""
        return any(node.simulated for node in self.nodes.values())

    @classmethod
    def load(cls, path: Path) -> HardwareLock:
        """The lock at `path`; an empty one if there is no such file, InventoryError if it can't be read."""
        if not path.exists():
            return cls()
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (ValidationError, ValueError, OSError) as error:
            what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            remedy = "restore it from git, or delete it and run deploys/discover.py"
            raise InventoryError(f"{path}: this hardware lock can't be read ({what}); {remedy}") from None

    @property
    def text(self) -> str:
        """The lock as its file holds it: stable, so that a change is a small diff."""
        return json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True) + "\n"

    def save(self, path: Path) -> None:
        """Write then rename, so that a killed run leaves the old lock or the new one."""
        new = path.with_suffix(".new")
        new.write_text(self.text, encoding="utf-8")
        new.replace(path)
