"""The rehearsal lab of nodes with kernels of their own: NFS, quotas, memory limits and reboots are real here."""

from inventory.model import Cluster, Firewall, Network, Nfs, Node, Slurm, Ssh, Team, User

_STATE = "/var/lib/klaster-lab"

CLUSTER = Cluster(
    name="lab-uml",
    substrate="rehearsal",
    lab="uml",
    state_dir=_STATE,
    networks=(Network(name="lan", cidr="10.77.0.0/24", speed_gbps=1),),
    nodes=(
        Node(name="head", address="10.77.0.10", roles=("controller", "storage")),
        # Each node has a blank disk, and one with a file system (ext4 with quotas) that "a person" made.
        Node(name="n1", address="10.77.0.11", scratch_disk="/dev/ubdb"),
        Node(name="n2", address="10.77.0.12", scratch_disk="/dev/ubdb"),
    ),
    # The lab makes this key and these host keys when it comes up; a fresh node has another host key each time.
    ssh=Ssh(user="root", key=f"{_STATE}/id_ed25519", known_hosts=f"{_STATE}/known_hosts"),
    storage=(Nfs(path="/home"), Nfs(path="/data", device="/dev/ubdc", teams=True)),
    teams=(Team(name="red", quota_gib=1), Team(name="blue", readers=("red",))),
    users=(
        User(name="kim", uid=10_001, teams=("red",), administrator=True),
        User(name="alex", uid=10_002, teams=("blue",), quota_gib=1),
    ),
    slurm=Slurm(),
    # A user-mode kernel has no nftables; the firewall is tried in the lab of containers.
    firewall=Firewall(enabled=False),
    time_servers=(),
)

globals().update(CLUSTER.groups(__file__))
