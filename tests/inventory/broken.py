"""Inventories as a weekend user gets them wrong: each a small change to a right one, and the words it must give."""

from __future__ import annotations

from dataclasses import dataclass

RIGHT = """\
from inventory.model import Cluster, External, Gpu, Link, Network, Node, Partition, Slurm, Ssh, Team, User

CLUSTER = Cluster(
    name="den",
    networks=(Network(name="lan", cidr="192.168.1.0/24", speed_gbps=1),),
    nodes=(
        Node(name="attic", address="192.168.1.10", roles=("controller", "compute")),
        Node(name="desk", address="192.168.1.11"),
        Node(name="cellar", address="192.168.1.12"),
    ),
    ssh=Ssh(user="root", key="~/.ssh/id_ed25519"),
    teams=(Team(name="family"),),
    users=(User(name="alex", uid=10_001, teams=("family",)), User(name="kim", uid=10_002, teams=("family",))),
    slurm=Slurm(partitions=(Partition(name="quick", nodes=("desk",)),)),
    storage=(External(path="/data"),),
)

globals().update(CLUSTER.groups(__file__))
"""


@dataclass(frozen=True)
class Mistake:
    """`old` becomes `new` in RIGHT; the message names `line` and holds all `words`."""

    what: str
    old: str
    new: str
    line: int
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        if RIGHT.count(self.old) != 1:
            raise AssertionError(f"{self.what}: {self.old!r} is {RIGHT.count(self.old)} times in the right inventory")
        return RIGHT.replace(self.old, self.new)


_TEAM = 'Team(name="family")'
_QUICK = 'Partition(name="quick", nodes=("desk",))'
_DATA = 'External(path="/data")'
_DESK = 'Node(name="desk", address="192.168.1.11")'
_CELLAR = 'Node(name="cellar", address="192.168.1.12")'
_LAN = 'Network(name="lan", cidr="192.168.1.0/24", speed_gbps=1)'
_ALEX = 'User(name="alex", uid=10_001, teams=("family",))'
_LAST = "globals().update(CLUSTER.groups(__file__))"
_NODES = RIGHT[RIGHT.index("    nodes=(") : RIGHT.index("    ssh=")]

MISTAKES = (
    # Names
    Mistake("capital in a name", 'name="desk"', 'name="Desk"', 8, ('Node "Desk"', "small letters", 'mean "desk"?')),
    Mistake("space in a name", 'name="cellar"', 'name="my cellar"', 9, ('"my cellar"', 'mean "my-cellar"?')),
    Mistake("dot in a name", 'name="cellar"', 'name="cellar.lan"', 9, ('"cellar.lan"', "no dot", 'mean "cellar"?')),
    Mistake("localhost as a name", 'name="cellar"', 'name="localhost"', 9, ('"localhost" is reserved',)),
    Mistake("name of a group", 'name="cellar"', 'name="compute"', 9, ('"compute" is reserved',)),
    Mistake("named controller, is none", '"cellar"', '"controller"', 9, ('have the role "controller"',)),
    Mistake("doubled name", 'name="cellar"', 'name="attic"', 9, ('node name "attic" is there twice', "den.py:7")),
    Mistake("name is a number", 'name="den"', "name=7", 3, ("name must be a text in quotes", "the number 7")),
    # Addresses and networks
    Mistake("doubled address", "1.12", "1.11", 9, ('address "192.168.1.11" is there twice', "den.py:8")),
    Mistake("address elsewhere", "1.12", "2.12", 9, ("192.168.2.12", "192.168.1.1 to 192.168.1.254")),
    Mistake("broadcast address", "1.12", "1.255", 9, ("192.168.1.255", "broadcast")),
    Mistake("address with length", '1.12"', '1.12/24"', 9, ('"192.168.1.12/24"', "without the /length")),
    Mistake("address out of range", "1.12", "1.312", 9, ('"192.168.1.312" is not an IPv4 address',)),
    Mistake("IPv6 address", '"192.168.1.12"', '"fd00::12"', 9, ('"fd00::12"', "IPv6 is not supported")),
    Mistake("MAC address", '"192.168.1.12"', '"AA:bb:cc:dd:ee:0f"', 9, ('"AA:bb', "that is a MAC address")),
    Mistake("loopback address", '"192.168.1.12"', '"127.0.0.1"', 9, ('"127.0.0.1"', "loopback")),
    Mistake("host bits in a network", "1.0/24", "1.10/24", 5, ("192.168.1.10/24", 'mean "192.168.1.0/24"?')),
    Mistake("network without length", "1.0/24", "1.0", 5, ('"192.168.1.0"', "length after / is missing")),
    Mistake("IPv6 network", '"192.168.1.0/24"', '"fd00::/64"', 5, ('"fd00::/64"', "IPv6 is not supported")),
    Mistake("overlap", _LAN, f'{_LAN}, Network(name="b", cidr="192.168.0.0/16", speed_gbps=1)', 5, ("overlap",)),
    Mistake(
        "unknown network",
        _DESK,
        'Node(name="desk", address="192.168.1.11", links=(Link(network="lam"),))',
        8,
        ('node "desk": no network "lam"', 'mean "lan"?'),
    ),
    Mistake("doubled network", _LAN, f"{_LAN}, {_LAN}", 5, ('network name "lan" is there twice',)),
    Mistake(
        "doubled link",
        _DESK,
        _DESK[:-1] + ', links=(Link(network="lan", mtu=9000), Link(network="lan", speed_gbps=2.5)))',
        8,
        ('link to network "lan" is there twice',),
    ),
    Mistake(
        "link with another address",
        _DESK,
        _DESK[:-1] + ', links=(Link(network="lan", address="192.168.1.99"),))',
        8,
        ("says 192.168.1.99, the node says 192.168.1.11", "leave the link's address out"),
    ),
    # Numbers
    Mistake("speed 0", "speed_gbps=1", "speed_gbps=0", 5, ("speed_gbps = 0 must be more than 0", "in Gb/s")),
    Mistake("speed in Mb/s", "speed_gbps=1", "speed_gbps=1000", 5, ("speed_gbps = 1000", "0 to 800", "1 for a gig")),
    Mistake("speed as a text", "speed_gbps=1", 'speed_gbps="1G"', 5, ("number without quotes", 'the text "1G"')),
    Mistake("speed as a tuple", "speed_gbps=1", "speed_gbps=(1,)", 5, ("number without quotes", "a tuple")),
    Mistake("speed not said", ", speed_gbps=1", "", 5, ('the field "speed_gbps" is missing', "write speed_gbps=")),
    Mistake("absurd MTU", "speed_gbps=1", "speed_gbps=1, mtu=90000", 5, ("mtu = 90000", "576 to 9216")),
    Mistake("uid too low", "10_001", "1000", 13, ('User "alex": uid = 1000', "10000 to 59999")),
    Mistake("uid as a text", "10_001", '"10001"', 13, ("uid must be a whole number without quotes", '"10001"')),
    Mistake("doubled uid", "10_002", "10_001", 13, ('uid "10001" is there twice',)),
    # Roles and people
    Mistake("unknown role", '("controller", "compute")', '("controler",)', 7, ('"controler"', 'mean "controller"?')),
    Mistake("role without comma", '("controller", "compute")', '("controller")', 7, ('roles=("controller",) with',)),
    Mistake("role twice", '("controller", "compute")', '("compute",) * 2', 7, ('role "compute" is there twice',)),
    Mistake("no controller", ', roles=("controller", "compute")', "", 3, ("no node has the role", "attic, desk")),
    Mistake(
        "two controllers",
        _DESK,
        'Node(name="desk", address="192.168.1.11", roles=("controller",))',
        8,
        ("exactly one node", "found attic and desk"),
    ),
    Mistake("unknown team", 'uid=10_001, teams=("family",)', 'uid=10_001, teams=("famly",)', 13, ('mean "family"?',)),
    Mistake("user like a team", 'name="alex"', 'name="family"', 13, ("named like a team", "rename one")),
    Mistake("user root", 'name="alex"', 'name="root"', 13, ('"root" belongs to the system',)),
    Mistake("private key", _ALEX, f"{_ALEX[:-1]}, ssh_keys=('-----BEGIN PRIVATE KEY',))", 13, ("keep it secret",)),
    Mistake("partition of nobody", 'nodes=("desk",)', 'nodes=("desc",)', 14, ('no compute node "desc"', '"desk"?')),
    Mistake("public key file", "id_ed25519", "id_ed25519.pub", 11, ("is the public key", '"~/.ssh/id_ed25519"')),
    Mistake("Path object", '"~/.ssh/id_ed25519"', '__import__("pathlib").Path("k")', 11, ("key must be a text",)),
    Mistake("doubled team", _TEAM, f"{_TEAM}, {_TEAM}", 12, ('team name "family" is there twice',)),
    Mistake("doubled user", 'name="kim"', 'name="alex"', 13, ('user name "alex" is there twice',)),
    Mistake("doubled partition", _QUICK, f"{_QUICK}, {_QUICK}", 14, ('partition name "quick" is there twice',)),
    Mistake(
        "two defaults",
        _QUICK,
        'Partition(name="a", default=True), Partition(name="b", default=True)',
        14,
        ("partitions a and b are both the default",),
    ),
    Mistake("doubled storage", _DATA, f"{_DATA}, {_DATA}", 15, ('storage path "/data" is there twice',)),
    Mistake("relative storage", '"/data"', '"data"', 15, ('"data" must be an absolute path',)),
    # Fields and shape
    Mistake("unknown field", _DESK, _DESK.replace("address", "adress"), 8, ('"adress"', 'mean "address"?')),
    Mistake("misspelt networks", "networks=", "network=", 3, ('unknown field "network"', 'mean "networks"?')),
    Mistake("no name for a field", 'Team(name="family")', 'Team("family")', 12, ("with its name", "Team(name=…)")),
    Mistake("single node, no tuple", _NODES, f"    nodes=({_CELLAR}),\n", 3, ("a single Node", "with the comma")),
    Mistake("number of cards", _DESK, _DESK.replace(")", ", gpus=2)"), 8, ("the number 2", "gpus=(Gpu(…),)")),
    Mistake("no nodes", _NODES, "    nodes=(),\n", 3, ("nodes is empty", "at least 1")),
    Mistake("network for a node", _CELLAR, _LAN, 3, ("nodes[2] must be Node(…)", "a single Network")),
    Mistake("tuple in a tuple", _CELLAR, f"({_CELLAR},)", 3, ("nodes[2] must be Node(…)", "a tuple")),
    Mistake("text for a part", 'Ssh(user="root", key="~/.ssh/id_ed25519")', '"root"', 3, ("ssh must be Ssh(…)",)),
    Mistake("doubled field", 'Team(name="family")', 'Team(name="a", name="b")', 12, ("not valid Python", "name")),
    # Python
    Mistake("forgotten comma", f"{_DESK},", _DESK, 8, ("not valid Python", "comma")),
    Mistake("open parenthesis", f"\n)\n\n{_LAST}", "\n", 3, ("not valid Python", "never closed")),
    Mistake("misspelt part", 'Team(name="family")', 'Taem(name="family")', 12, ('"Taem"', 'mean "Team"?')),
    Mistake("not imported", " Team, User", " User", 12, ('"Team" is not imported', "from inventory.model import")),
    Mistake("misspelt import", "Slurm, Ssh,", "Slurm, Shh,", 1, ('no "Shh"', 'mean "Ssh"?')),
    Mistake("unquoted name", 'name="desk"', "name=desk", 8, ('unknown name "desk"', "needs quotes")),
    Mistake("changed afterwards", _LAST, f'CLUSTER.name = "x"\n{_LAST}', 18, ("can't be changed", "Cluster(…)")),
    Mistake("exit in the file", _LAST, f"raise SystemExit(0)\n{_LAST}", 18, ("ends the program",)),
    Mistake("own fault", _LAST, f"1 / 0\n{_LAST}", 18, ("ZeroDivisionError",)),
    # What pyinfra reads
    Mistake("no last line", _LAST, "", 16, (f"the last line must be {_LAST}",)),
    Mistake("no file in it", "groups(__file__)", "groups()", 18, (f"the last line must be {_LAST}",)),
    Mistake("comma makes a tuple", f")\n\n{_LAST}", f"),\n\n{_LAST}", 18, ("found a tuple", "remove it")),
    Mistake("no CLUSTER", _LAST, "del CLUSTER", 3, ("CLUSTER is missing",)),
    Mistake("another name", "CLUSTER = C", "HOME = C", 18, ("CLUSTER is missing",)),
    Mistake("another name, no last line", _LAST, "HOME = CLUSTER; del CLUSTER", 18, ("must be called CLUSTER",)),
    Mistake("CLUSTER is a dictionary", _LAST, "CLUSTER = {}", 18, ("CLUSTER must be a Cluster(…)", "a dict")),
    Mistake("list at the top", "\nCLUSTER", "\nspares = ['a', 'b']\nCLUSTER", 3, ('list "spares"', '"_spares"')),
    Mistake("node like the file", 'name="cellar"', 'name="den"', 0, ('a node is named "den" like this file',)),
)
