"""The two-PC home in the rehearsal lab: the head computes too, one cable between them."""

from inventory.model import Cluster, External, Firewall, Network, Node, Slurm, Ssh

_STATE = "/var/lib/klaster-lab"

CLUSTER = Cluster(
    name="lab-two",
    substrate="rehearsal",
    state_dir=_STATE,
    networks=(Network(name="lan", cidr="10.77.0.0/24", speed_gbps=1),),
    nodes=(
        Node(name="head", address="10.77.0.10", roles=("controller", "compute")),
        Node(name="n1", address="10.77.0.11"),
    ),
    # The lab makes this key and these host keys when it comes up; a fresh node has another host key each time.
    ssh=Ssh(user="root", key=f"{_STATE}/id_ed25519", known_hosts=f"{_STATE}/known_hosts"),
    # The machine's kernel may have no NFS: the lab gives its nodes one shared folder from outside.
    storage=(External(path="/shared"),),
    slurm=Slurm(),
    firewall=Firewall(),
    time_servers=(),
)

globals().update(CLUSTER.groups(__file__))
