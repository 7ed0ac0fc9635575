"""The vocabulary of an inventory: what a cluster is made of, typed, frozen and checked before a host is contacted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from inventory.backup import Backup as Backup  # noqa: PLC0414 - inventories import it from here
from inventory.cards import GenerationName
from inventory.containers import Containers as Containers  # noqa: PLC0414 - inventories import it from here
from inventory.containers import Registry as Registry  # noqa: PLC0414 - inventories import it from here
from inventory.crosschecks import check_cluster
from inventory.drain_policy import DRAIN_SHARE
from inventory.errors import InventoryError, nearest
from inventory.gpu_stack import GpuStack as GpuStack  # noqa: PLC0414 - inventories import it from here
from inventory.networks import Purpose
from inventory.people import Directory as Directory  # noqa: PLC0414 - inventories import these from here
from inventory.people import Identity
from inventory.people import Ldap as Ldap  # noqa: PLC0414
from inventory.people import Limits as Limits  # noqa: PLC0414
from inventory.people import Team as Team  # noqa: PLC0414
from inventory.people import User as User  # noqa: PLC0414
from inventory.spec import Spec
from inventory.storage import BlockDevice, Role, Storage
from inventory.storage import External as External  # noqa: PLC0414 - inventories import these from here
from inventory.storage import Nfs as Nfs  # noqa: PLC0414
from inventory.topology import Leaf as Leaf  # noqa: PLC0414 - inventories import it from here
from inventory.words import (
    AbsolutePath,
    AccountName,
    Address,
    Cidr,
    HostName,
    IndexUrl,
    MailAddress,
    Mtu,
    OwnFile,
    Port,
    PrivateKeyFile,
    ServerName,
    Speed,
    Switch,
    Text,
    WebAddress,
)

Substrate = Literal["hardware", "rehearsal", "simulation"]
LabKind = Literal["container", "uml"]

DEPLOY_ACCOUNT = "klaster"
"""The account that runs certification jobs; its home is local, so that no mount can lock the administrator out."""
DEPLOY_UID = 901
"""Below Debian's first dynamic system uid that sysusers hands out (it counts down from 999) by a safe distance."""
DEPLOY_HOME = "/var/lib/klaster"


class Network(Spec):
    """One network that nodes have an address in; its speed and MTU hold for every node that does not say otherwise."""

    name: HostName = Field(description="What links call it.")
    cidr: Cidr = Field(description="Its range, e.g. 192.168.1.0/24.")
    speed_gbps: Speed = Field(
        description="Declared speed of a node's link in Gb/s, 1 for a gigabit port; bandwidth is judged by it."
    )
    mtu: Mtu = Field(default=1500, description="Largest packet in bytes; 9000 only if every port and switch has it.")
    purposes: tuple[Purpose, ...] = Field(
        default=(), description="What it carries; the first network carries all that no other one does."
    )


class Link(Spec):
    """A node's connection to one network, where it differs from the network or is a second one."""

    network: HostName = Field(description="Name of the network.")
    address: Address | None = Field(default=None, description="Needed for every network but the first.")
    speed_gbps: Speed | None = Field(default=None, description="Declared speed in Gb/s, if not the network's.")
    mtu: Mtu | None = Field(default=None, description="Largest packet in bytes, if not the network's.")
    leaf: HostName | None = Field(default=None, description="The leaf switch it hangs on, where that network has some.")


class Gpu(Spec):
    """One or more like cards that a node must have."""

    model: Text = Field(min_length=2, description="As nvidia-smi names it, e.g. NVIDIA GeForce RTX 3090.")
    count: int = Field(default=1, strict=True, ge=1, le=16, description="How many of them.")
    generation: GenerationName | None = Field(default=None, description="Only for a card not known by its name.")
    power_cap_watts: int | None = Field(
        default=None, strict=True, ge=50, le=1500, description="Limit a card's power: a home's breaker is small."
    )
    no_p2p_because: Text | None = Field(
        default=None, description="Turn copies between cards off (NCCL_P2P_DISABLE) and say why, as validation found."
    )


class Node(Spec):
    """One machine."""

    name: HostName = Field(description="Its host name; the deploy sets it.")
    address: Address = Field(description="Its address in the first network.")
    roles: tuple[Role, ...] = Field(
        default=("compute",), min_length=1, description="controller (exactly one node), compute, storage (at most one)."
    )
    gpus: tuple[Gpu, ...] = Field(default=(), description="Cards it must have; missing ones fail certification.")
    scratch_disk: BlockDevice | None = Field(
        default=None, description="Blank disk for /scratch; one with anything on it is refused, never wiped."
    )
    links: tuple[Link, ...] = Field(default=(), description="Further networks, or another speed or MTU in the first.")
    leaf: HostName | None = Field(default=None, description="The leaf switch it hangs on in the first network.")
    ssh_user: Text | None = Field(default=None, description="The account to log in with, if not the cluster's.")

    @property
    def gpu_count(self) -> int:
        return sum(gpu.count for gpu in self.gpus)


class Ssh(Spec):
    """How the control machine reaches the nodes."""

    user: Text = Field(default="root", description="root, or an account that may use sudo without a password.")
    key: PrivateKeyFile | None = Field(
        default=None, description="Private key file; without it the agent and ~/.ssh are tried."
    )
    port: Port = Field(default=22, description="Port of sshd on every node.")
    known_hosts: OwnFile | None = Field(default=None, description="A known_hosts file; the default is your own.")
    strict_host_keys: Literal["yes", "accept-new", "no"] = Field(
        default="accept-new", description='"yes": only hosts already in known_hosts.'
    )
    keep_password_login: Switch = Field(default=False, description="Leave sshd's password log-in on.")


class Partition(Spec):
    """A Slurm partition of some or all compute nodes."""

    name: AccountName = Field(description="What sbatch -p takes.")
    nodes: tuple[HostName, ...] = Field(default=(), description="Empty: every compute node.")
    teams: tuple[AccountName, ...] = Field(default=(), description="Teams that may use it; empty: all.")
    priority: int = Field(
        default=1, strict=True, ge=0, le=65_000, description="Jobs of a higher one start first (dev 1, prod 2)."
    )
    default: Switch = Field(default=False, description="Takes the jobs that name no partition.")
    max_time_minutes: int | None = Field(default=None, strict=True, ge=1, description="Unset: no limit.")


class Slurm(Spec):
    """What of Slurm is a choice; the rest follows from the nodes and their hardware lock."""

    partitions: tuple[Partition, ...] = Field(
        default=(Partition(name="all", default=True),), min_length=1, description="One of all nodes, unless you say."
    )
    preempt: Literal["off", "requeue", "cancel"] = Field(
        default="off", description="What becomes of a running job that one of a partition of higher priority needs."
    )
    health: Switch = Field(
        default=True, description="Check idle nodes every five minutes, and each node before and after a job."
    )
    drain_share: float = Field(
        default=DRAIN_SHARE,
        strict=True,
        gt=0,
        le=1,
        description="Nothing more is drained by itself once this share of the compute nodes is out of service.",
    )
    controller_port: Port = Field(default=6817, description="Port of slurmctld.")
    node_port: Port = Field(default=6818, description="Port of slurmd.")
    memory_share: float = Field(
        default=0.95,
        strict=True,
        gt=0,
        le=1,
        description="RealMemory ÷ memory seen: firmware updates move it by a little.",
    )


class TrainingEnv(Spec):
    """Where torch comes from on the nodes."""

    source: Literal["auto", "debian", "venv"] = Field(
        default="auto", description="debian: the package python3-torch. venv: a lock file and an index. auto: by node."
    )
    venv: AbsolutePath = Field(default="/opt/klaster/torch", description="Folder of the virtual environment.")
    lock_file: Text | None = Field(default=None, description="Requirements with hashes for the virtual environment.")
    index_url: IndexUrl | None = Field(default=None, description="Package index for it; unset: as pip is set up there.")
    cuda: str | None = Field(default=None, pattern=r"^\d+\.\d+$", description='CUDA of the torch build, e.g. "12.8".')


class Firewall(Spec):
    """What may be reached from outside the cluster's networks besides ssh."""

    enabled: Switch = Field(default=True, description="Manage nftables on the nodes.")
    open_ports: tuple[Port, ...] = Field(default=(), description="TCP ports open to the world on the controller.")
    trusted: tuple[Cidr, ...] = Field(default=(), description="Further networks that may reach everything.")


class Mail(Spec):
    """Somebody whom alerts reach by e-mail."""

    to: MailAddress = Field(description="Who gets them.")
    sender: MailAddress = Field(description="Who they come from.")
    server: ServerName = Field(description="Mail server that takes them, with TLS (STARTTLS).")
    port: Port = Field(default=587, description="Its port.")
    user: Text | None = Field(default=None, description='Account there; its password is the secret "smtp".')


class Webhook(Spec):
    """A program that gets each alert as JSON (a chat, a pager)."""

    name: HostName = Field(description="What you call it.")
    url: WebAddress | None = Field(
        default=None, description='Where Alertmanager posts to; unset: the secret "webhook:NAME", for one with a token.'
    )


class Nightly(Spec):
    """A certification of idle nodes every night, started on the controller."""

    at: str = Field(default="03:30", pattern=r"^([01]\d|2[0-3]):[0-5]\d$", description="Time of day on the controller.")
    level: Literal["quick", "standard"] = Field(default="quick", description="As validate-cluster's --level.")


class Grafana(Spec):
    """Dashboards for the browser, from Grafana's own package repository (Debian has none)."""

    repository: WebAddress = Field(description="Address of Grafana's apt repository, from its installation page.")
    key_file: OwnFile = Field(description="The repository's public key (ASCII armor), a file of yours.")
    version: str = Field(pattern=r"^\d+\.\d+\.\d+$", description='Exact version, e.g. "11.6.0"; held against upgrades.')
    port: Port = Field(default=3000, description="Where it listens on the controller's address, with TLS.")


class Monitoring(Spec):
    """Metrics, alerts and logs of the whole cluster, kept on the controller."""

    retention_days: int = Field(default=30, strict=True, ge=1, le=3650, description="How long metrics are kept.")
    retention_gib: int = Field(default=10, strict=True, ge=1, le=10_000, description="Most disk that metrics take.")
    mail: tuple[Mail, ...] = Field(default=(), description="Who hears of alerts by e-mail.")
    webhooks: tuple[Webhook, ...] = Field(default=(), description="Which programs hear of alerts.")
    logs_gib: int | None = Field(
        default=4, strict=True, ge=1, description="Most disk for all nodes' journals; None: journals stay on the nodes."
    )
    nightly: Nightly | None = Field(default=Nightly(), description="Certification by night; None: only by hand.")
    grafana: Grafana | None = Field(default=None, description="Dashboards; None: files only, no Grafana.")


class Cluster(Spec):
    """The whole: what `CLUSTER` in an inventory file must be."""

    name: HostName = Field(description="Used in reports and certificates.")
    networks: tuple[Network, ...] = Field(min_length=1, description="The first holds every node's address.")
    nodes: tuple[Node, ...] = Field(min_length=1, description="The machines, one line each.")
    leaves: tuple[Leaf, ...] = Field(default=(), description="Leaf switches; unset: one switch for all nodes.")
    ssh: Ssh = Field(default=Ssh(), description="How the nodes are reached.")
    teams: tuple[Team, ...] = Field(default=(), description="Groups of people.")
    users: tuple[User, ...] = Field(default=(), description="People.")
    identity: Identity | None = Field(
        default=None,
        discriminator="kind",
        description="Where people are kept; unset: a directory of its own, once a team is declared.",
    )
    backup: Backup | None = Field(
        default=None, description="Nightly copies of people and job history; unset: as Backup() is, for a team."
    )
    storage: tuple[Storage, ...] = Field(
        default=(), description="Shared folders: Nfs(…) of a node of the cluster, External(…) of others."
    )
    slurm: Slurm = Field(default=Slurm(), description="Partitions and ports.")
    training: TrainingEnv = Field(default=TrainingEnv(), description="Where torch comes from.")
    gpu_stack: GpuStack | None = Field(default=None, description="NVIDIA's drivers and tools; unset: yours to install.")
    containers: Containers | None = Field(default=None, description="Rootless containers on the nodes; unset: none.")
    registry: Registry | None = Field(default=None, description="The cluster's own container registry; unset: none.")
    firewall: Firewall = Field(default=Firewall(), description="What is reachable from outside.")
    monitoring: Monitoring | None = Field(default=None, description="Metrics, alerts, logs; unset: none of it.")
    time_servers: tuple[ServerName, ...] = Field(
        default=("0.pool.ntp.org", "1.pool.ntp.org"), description="The controller's own time sources; may be empty."
    )
    substrate: Substrate = Field(default="hardware", description="What certificates of this cluster are about.")
    lab: LabKind = Field(
        default="container", description="What a rehearsal's nodes are; uml: each has its own kernel (NFS, quotas)."
    )
    state_dir: AbsolutePath | None = Field(
        default=None, description="Folder of lock and secrets; unset: beside the inventory file."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        check_cluster(self)
        return self

    # --- questions that roles and validation ask -------------------------------------------------------------

    @property
    def controller(self) -> Node:
        return next(node for node in self.nodes if "controller" in node.roles)

    @property
    def compute_nodes(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if "compute" in node.roles)

    @property
    def storage_node(self) -> Node:
        """The node that serves the Nfs shares."""
        return next((node for node in self.nodes if "storage" in node.roles), self.controller)

    @property
    def nfs(self) -> tuple[Nfs, ...]:
        return tuple(share for share in self.storage if isinstance(share, Nfs))

    @property
    def people(self) -> Identity | None:
        """Where people are kept; None for a cluster without teams and without a directory."""
        return self.identity or (Ldap() if self.teams else None)

    @property
    def backups(self) -> Backup | None:
        """How people and job history are copied; None for a cluster that has neither."""
        return self.backup or (Backup() if self.teams else None)

    def node(self, name: str) -> Node:
        """The node of that name; InventoryError with the nearest name otherwise."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise InventoryError(f'no node "{name}" in cluster "{self.name}" {nearest(name, (n.name for n in self.nodes))}')

    def link(self, node: Node, network: Network | None = None) -> Link:
        """A node's resolved link to `network` (the first by default): address, speed and MTU all set."""
        network = network or self.networks[0]
        own = next((link for link in node.links if link.network == network.name), Link(network=network.name))
        address = own.address or (node.address if network is self.networks[0] else None)
        return Link(
            network=network.name,
            address=address,
            speed_gbps=own.speed_gbps or network.speed_gbps,
            mtu=own.mtu or network.mtu,
        )

    def groups(self, inventory_file: str) -> dict[str, Any]:
        """pyinfra's groups: a list a role plus `all`; host data hold the connection and the inventory's path."""
        path = str(Path(inventory_file).resolve())
        hosts = {node.name: (node.name, self._connection(node)) for node in self.nodes}
        shared = {"inventory_file": path}
        by_role: dict[str, Any] = {
            role: ([hosts[node.name] for node in self.nodes if role in node.roles], {})
            for role in ("controller", "compute", "storage")
        }
        return {"all": (list(hosts.values()), shared), **by_role}

    def _connection(self, node: Node) -> dict[str, Any]:
        user = node.ssh_user or self.ssh.user
        data: dict[str, Any] = {
            "ssh_hostname": node.address,
            "ssh_port": self.ssh.port,
            "ssh_user": user,
            "ssh_strict_host_key_checking": self.ssh.strict_host_keys,
            "_sudo": user != "root",
        }
        if self.ssh.key:
            data["ssh_key"] = str(Path(self.ssh.key).expanduser())
        if self.ssh.known_hosts:
            data["ssh_known_hosts_file"] = str(Path(self.ssh.known_hosts).expanduser())
        return data
