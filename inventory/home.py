"""A cluster of three PCs at home. Copy this file, change it, and run the two commands of README."""

from inventory.model import Cluster, Gpu, Link, Network, Node, Ssh, Team, User

CLUSTER = Cluster(
    name="home",
    # The network that all nodes are in. Say the speed of the cable and switch port, not what you hope for:
    # bandwidth is judged by it.
    networks=(Network(name="lan", cidr="192.168.1.0/24", speed_gbps=1),),
    nodes=(
        # Exactly one node is the controller (the head). It may compute too.
        Node(name="attic", address="192.168.1.10", roles=("controller", "compute")),
        # A PC with two graphics cards and a faster port than the others.
        Node(
            name="desk",
            address="192.168.1.11",
            gpus=(Gpu(model="NVIDIA GeForce RTX 3090", count=2),),
            links=(Link(network="lan", speed_gbps=2.5),),
        ),
        Node(name="cellar", address="192.168.1.12"),
        # To add a node, add a line here and run the two commands again.
    ),
    # An account that can use sudo without a password (or root), and the key it is reached with.
    ssh=Ssh(user="root", key="~/.ssh/id_ed25519"),
    teams=(Team(name="family"),),
    users=(User(name="alex", uid=10_001, teams=("family",), administrator=True),),
)

# pyinfra reads its groups from here. Leave this line last.
globals().update(CLUSTER.groups(__file__))
