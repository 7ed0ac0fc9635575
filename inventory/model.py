"""The vocabulary of an inventory: what a cluster is made of, typed, frozen and checked before a host is contacted."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from inventory.errors import InventoryError, nearest, one_line, place_in_inventory

Role = Literal["controller", "compute"]
Substrate = Literal["hardware", "rehearsal", "simulation"]

DEPLOY_ACCOUNT = "klaster"
"""The account that runs certification jobs; its home is local, so that no mount can lock the administrator out."""
DEPLOY_HOME = "/var/lib/klaster"
FIRST_PERSON_UID = 10_000
"""People start above the range that distributions hand out to local accounts (1000–9999)."""
LAST_PERSON_UID = 59_999


def _host_name(text: str) -> str:
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", text):
        raise ValueError(
            f'"{text}" is not a host name: small letters, digits and hyphens, a letter first, no dot, at most 63'
        )
    return text


def _account_name(text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,30}", text):
        raise ValueError(f'"{text}" is not an account name: small letters, digits, _ and -, a letter first')
    return text


def _address(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError as error:
        raise ValueError(f'"{text}" is not an IPv4 address such as 192.168.1.10') from error


def _cidr(text: str) -> str:
    try:
        return str(ipaddress.IPv4Network(text))
    except ValueError as error:
        raise ValueError(f'"{text}" is not an IPv4 network such as 192.168.1.0/24: {error}') from error


def _absolute(text: str) -> str:
    if not text.startswith("/") or ".." in text.split("/"):
        raise ValueError(f'"{text}" must be an absolute path without ".."')
    return text.rstrip("/") or "/"


HostName = Annotated[str, AfterValidator(_host_name)]
AccountName = Annotated[str, AfterValidator(_account_name)]
Address = Annotated[str, AfterValidator(_address)]
Cidr = Annotated[str, AfterValidator(_cidr)]
AbsolutePath = Annotated[str, AfterValidator(_absolute)]
Port = Annotated[int, Field(ge=1, le=65535)]


class Spec(BaseModel):
    """Base of every part: frozen, no unknown field, and an InventoryError in one line instead of a traceback."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            line = one_line(type(self).__name__, values, type(self).model_fields, error)
            raise InventoryError(place_in_inventory() + line) from None


class Network(Spec):
    """One network that nodes have an address in; its speed and MTU hold for every node that does not say otherwise."""

    name: HostName
    cidr: Cidr
    speed_gbps: float = Field(gt=0, description="Declared link speed of a node, in Gb/s; what bandwidth is judged by.")
    mtu: int = Field(default=1500, ge=576, le=9216, description="MTU in bytes.")


class Link(Spec):
    """A node's connection to one network, where it differs from the network or is a second one."""

    network: HostName
    address: Address | None = Field(default=None, description="Needed for every network but the first.")
    speed_gbps: float | None = Field(default=None, gt=0, description="Declared speed in Gb/s, if not the network's.")
    mtu: int | None = Field(default=None, ge=576, le=9216)


class Gpu(Spec):
    """One or more like cards that a node must have."""

    model: str = Field(min_length=2, description="As nvidia-smi names it, e.g. NVIDIA GeForce RTX 3090.")
    count: int = Field(default=1, ge=1, le=16)


class Node(Spec):
    """One machine."""

    name: HostName
    address: Address = Field(description="Its address in the first network.")
    roles: tuple[Role, ...] = Field(default=("compute",), min_length=1)
    gpus: tuple[Gpu, ...] = ()
    links: tuple[Link, ...] = Field(default=(), description="Further networks, or another speed or MTU in the first.")
    ssh_user: str | None = Field(default=None, description="If not the cluster's.")

    @property
    def gpu_count(self) -> int:
        return sum(gpu.count for gpu in self.gpus)


class Ssh(Spec):
    """How the control machine reaches the nodes."""

    user: str = Field(default="root", description="root, or an account that may use sudo without a password.")
    key: str | None = Field(default=None, description="Private key file; without it the agent and ~/.ssh are tried.")
    port: Port = 22
    known_hosts: str | None = Field(default=None, description="A known_hosts file; the default is your own.")
    strict_host_keys: Literal["yes", "accept-new", "no"] = Field(
        default="accept-new", description='"yes": only hosts already in known_hosts.'
    )
    keep_password_login: bool = Field(default=False, description="Leave sshd's password log-in on.")


class Team(Spec):
    """People who share a partition, data and limits."""

    name: AccountName
    description: str = ""


class User(Spec):
    """A person with the same uid on every node."""

    name: AccountName
    uid: int = Field(ge=FIRST_PERSON_UID, le=LAST_PERSON_UID)
    teams: tuple[AccountName, ...] = Field(min_length=1)
    ssh_keys: tuple[str, ...] = ()
    administrator: bool = False


class External(Spec):
    """Storage that others provide and mount (a NAS, Lustre, CephFS): only checked, by mount and file-system type."""

    path: AbsolutePath
    fstype: str | None = Field(default=None, description="File-system type the mount must have; unset: any.")
    on: tuple[Role, ...] = Field(default=("controller", "compute"), description="Roles whose nodes must have it.")


class Partition(Spec):
    """A Slurm partition of some or all compute nodes."""

    name: AccountName
    nodes: tuple[HostName, ...] = Field(default=(), description="Empty: every compute node.")
    default: bool = False
    max_time_minutes: int | None = Field(default=None, ge=1, description="Unset: no limit.")


class Slurm(Spec):
    """What of Slurm is a choice; the rest follows from the nodes and their hardware lock."""

    partitions: tuple[Partition, ...] = (Partition(name="all", default=True),)
    controller_port: Port = 6817
    node_port: Port = 6818
    memory_share: float = Field(
        default=0.95, gt=0, le=1, description="RealMemory ÷ memory seen: firmware updates move it by a little."
    )


class TrainingEnv(Spec):
    """Where torch comes from on the nodes."""

    source: Literal["auto", "debian", "venv"] = Field(
        default="auto", description="debian: the package python3-torch. venv: a lock file and an index. auto: by node."
    )
    venv: AbsolutePath = "/opt/klaster/torch"
    lock_file: str | None = Field(default=None, description="Requirements with hashes for the virtual environment.")
    index_url: str | None = Field(default=None, description="Package index for it; unset: as pip is set up there.")
    cuda: str | None = Field(default=None, pattern=r"^\d+\.\d+$", description='CUDA of the torch build, e.g. "12.8".')


class Firewall(Spec):
    """What may be reached from outside the cluster's networks besides ssh."""

    enabled: bool = True
    open_ports: tuple[Port, ...] = Field(default=(), description="TCP ports open to the world on the controller.")
    trusted: tuple[Cidr, ...] = Field(default=(), description="Further networks that may reach everything.")


class Cluster(Spec):
    """The whole: what `CLUSTER` in an inventory file must be."""

    name: HostName
    networks: tuple[Network, ...] = Field(min_length=1, description="The first holds every node's address.")
    nodes: tuple[Node, ...] = Field(min_length=1)
    ssh: Ssh = Ssh()
    teams: tuple[Team, ...] = ()
    users: tuple[User, ...] = ()
    storage: tuple[External, ...] = ()
    slurm: Slurm = Slurm()
    training: TrainingEnv = TrainingEnv()
    firewall: Firewall = Firewall()
    time_servers: tuple[str, ...] = Field(
        default=("0.pool.ntp.org", "1.pool.ntp.org"), description="The controller's own time sources; may be empty."
    )
    substrate: Substrate = Field(default="hardware", description="What certificates of this cluster are about.")
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
            for role in ("controller", "compute")
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


def check_cluster(cluster: Cluster) -> None:
    """Cross-check the parts of a cluster; ValueError with one sentence at the first that does not fit."""
    _unique("node name", [node.name for node in cluster.nodes])
    _unique("node address", [node.address for node in cluster.nodes])
    _unique("network name", [network.name for network in cluster.networks])
    _unique("team name", [team.name for team in cluster.teams])
    _unique("user name", [user.name for user in cluster.users])
    _unique("uid", [str(user.uid) for user in cluster.users])
    _unique("partition name", [partition.name for partition in cluster.slurm.partitions])
    _unique("storage path", [storage.path for storage in cluster.storage])
    _check_controller(cluster)
    for node in cluster.nodes:
        _check_node(cluster, node)
    teams = {team.name for team in cluster.teams}
    for user in cluster.users:
        for team in user.teams:
            if team not in teams:
                raise ValueError(f'user "{user.name}": no team "{team}" {nearest(team, teams)}')
    compute = {node.name for node in cluster.compute_nodes}
    for partition in cluster.slurm.partitions:
        for name in partition.nodes:
            if name not in compute:
                raise ValueError(f'partition "{partition.name}": no compute node "{name}" {nearest(name, compute)}')
    if sum(partition.default for partition in cluster.slurm.partitions) > 1:
        raise ValueError("more than one partition is the default; leave default=True on one")


def _unique(what: str, values: list[str]) -> None:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f'{what} "{value}" is there {values.count(value)} times; it must be unique')


def _check_controller(cluster: Cluster) -> None:
    controllers = [node.name for node in cluster.nodes if "controller" in node.roles]
    if len(controllers) != 1:
        found = ", ".join(controllers) or "none"
        raise ValueError(f'exactly one node must have the role "controller"; found {found}')
    if not cluster.compute_nodes:
        raise ValueError('no node has the role "compute"')


def _check_node(cluster: Cluster, node: Node) -> None:
    first = cluster.networks[0]
    _check_address(f'node "{node.name}"', node.address, first)
    networks = {network.name: network for network in cluster.networks}
    _unique(f'node "{node.name}": link to network', [link.network for link in node.links])
    for link in node.links:
        if link.network not in networks:
            raise ValueError(
                f'node "{node.name}": no network "{link.network}" {nearest(link.network, networks)}'
            )
        if link.network == first.name:
            if link.address not in (None, node.address):
                raise ValueError(f'node "{node.name}": its link to "{first.name}" says another address than the node')
        elif link.address is None:
            raise ValueError(f'node "{node.name}": its link to "{link.network}" needs an address')
        else:
            _check_address(f'node "{node.name}"', link.address, networks[link.network])


def _check_address(subject: str, address: str, network: Network) -> None:
    net = ipaddress.IPv4Network(network.cidr)
    ip = ipaddress.IPv4Address(address)
    if ip not in net:
        raise ValueError(f'{subject}: address {address} is not in the network "{network.name}" ({network.cidr})')
    if net.prefixlen < 31 and ip in (net.network_address, net.broadcast_address):
        raise ValueError(f"{subject}: {address} is the network or broadcast address of {network.cidr}")
