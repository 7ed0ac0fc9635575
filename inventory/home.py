"""A cluster of three PCs at home: copy this file, describe your own machines, and run the two commands of README."""

from inventory.model import Cluster, Gpu, Link, Network, Node, Ssh, Team, User

CLUSTER = Cluster(
    # Stands in reports and certificates.
    name="home",
    # The network that all nodes are in. Give the speed of cable, port and switch, not what you hope for: bandwidth
    # is judged by it. A usual home network is 1 (gigabit). A Wi-Fi link is no link for a cluster.
    networks=(Network(name="lan", cidr="192.168.1.0/24", speed_gbps=1),),
    nodes=(
        # Exactly one node is the controller: Slurm's brain, best the PC that is always on. Here it computes too.
        Node(name="attic", address="192.168.1.10", roles=("controller", "compute")),
        # A PC with two graphics cards, and a faster port than the network's.
        # `nvidia-smi -L` prints the cards' names. The NVIDIA driver must be installed already, unless you declare a
        # gpu_stack (docs/gpu.md).
        Node(
            name="desk",
            address="192.168.1.11",
            gpus=(Gpu(model="NVIDIA GeForce RTX 3090", count=2),),
            links=(Link(network="lan", speed_gbps=2.5),),
        ),
        # The shortest node: it computes, on its processor.
        Node(name="cellar", address="192.168.1.12"),
        # To add a node, add a line here and run the two commands again.
    ),
    # The account that logs in to the nodes: root, or one that may use sudo without a password. And its private key.
    ssh=Ssh(user="root", key="~/.ssh/id_ed25519"),
    # People, and the teams they are in: each gets an account on every node, logs in with a key of ssh_keys=(…), and may
    # take what their team may (docs/people.md). Keep a person's uid for ever: files belong to the number.
    # Not the account that you made when you installed the PCs: the deploy refuses a local account of the same name.
    # Without both lines no directory and no accounting is installed.
    teams=(Team(name="family"),),
    users=(User(name="kim", uid=10_001, teams=("family",), administrator=True),),
    # A node with GPUs needs a CUDA build of torch. Make a lock of it (docs/weekend-guide.md says how), add TrainingEnv
    # to the import above, and say where the lock is. Nodes without GPUs get Debian's own build, without this line.
    # training=TrainingEnv(lock_file="inventory/torch-cuda.lock"),
)

# pyinfra reads its hosts from here. Leave this line last.
globals().update(CLUSTER.groups(__file__))
