"""Shared folders, scratch, team folders and quotas: what is written, and above all what is refused."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from inventory.errors import InventoryError
from inventory.model import Cluster, External, Nfs, Node, Ssh, Team, User
from inventory.storage import expected_mounts
from roles import firewall, storage
from roles.facts.quotas import Folder, QuotaState, parse_folders, parse_quotas
from roles.facts.storage import UNITS, Disk, Mount, MountUnit, StorageHere, StorageState, parse_storage
from roles.operations.disks import make_command, refuse_disk, unmount_command
from roles.operations.spaces import KIB_A_GIB, cannot, quota_commands, space_commands, team_folders, wanted_quotas
from roles.operations.tree import Tree
from tests.roles.sample import cluster
from tests.roles.sample_people import with_people

NODES = (
    Node(name="head", address="10.0.0.1", roles=("controller",)),
    Node(name="nas", address="10.0.0.2", roles=("storage",)),
    Node(name="n1", address="10.0.0.3", scratch_disk="/dev/sdb"),
    Node(name="n2", address="10.0.0.4"),
)
SHARES = (Nfs(path="/home"), Nfs(path="/data", device="/dev/sdc", teams=True, on=("compute",)))


def sample(**changes: object) -> Cluster:
    return cluster(**{"nodes": NODES, "storage": SHARES, **changes})


def content(tree: Tree, path: str) -> str:
    return next(file.content for file in tree.files if file.path == path)


# --- server and clients ------------------------------------------------------------------------------------------


def test_folders_are_exported_to_the_nodes_that_mount_them_and_to_nobody_else() -> None:
    """Each line names single addresses with root squashed; one with a disk is served only while that is mounted."""
    text = content(storage.server_plan(sample()), "/etc/exports.d/klaster.exports")
    home, data = [line for line in text.splitlines() if line.startswith("/")]
    options = "rw,sync,root_squash,no_subtree_check"
    assert home == f"/home 10.0.0.1({options}) 10.0.0.3({options}) 10.0.0.4({options})"
    assert data == f"/data 10.0.0.3({options},mountpoint) 10.0.0.4({options},mountpoint)"


def test_a_client_mounts_with_the_options_of_the_field_notes() -> None:
    """NFS 4.2, hard, nosuid, nodev, after the network; the unit has the name that systemd wants."""
    tree = storage.client_plan(sample(), NODES[2], StorageState())
    unit = content(tree, "/etc/systemd/system/home.mount")
    assert "What=10.0.0.2:/home\n" in unit
    assert "Options=vers=4.2,proto=tcp,hard,retry=0,nosuid,nodev,_netdev\n" in unit
    assert "After=network.target network-online.target\n" in unit
    assert storage.unit_name("/srv/a-b/c") == "srv-a\\x2db-c.mount"


def test_slurmd_waits_for_everything_that_its_node_mounts() -> None:
    """The waiting service starts each unit, scratch too, and slurmd comes after it; the server waits for nothing."""
    tree = storage.client_plan(sample(), NODES[2], StorageState())
    script = content(tree, "/usr/local/sbin/klaster-storage")
    assert [line for line in script.splitlines() if line.endswith(".mount")] == [
        "home.mount",
        "data.mount",
        "scratch.mount",
    ]
    assert "After=klaster-storage.service" in content(tree, storage.SLURMD_WAITS)
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0
    assert storage.client_plan(sample(), NODES[1], StorageState()).files == ()
    assert storage.SLURMD_WAITS not in storage.client_plan(sample(), NODES[0], StorageState()).paths


def test_a_share_that_left_the_inventory_loses_its_unit() -> None:
    """Units that klaster wrote and nobody wants are taken away; those of the server's disks stay."""
    old = StorageState(units={f"{UNITS}/old.mount": MountUnit("/old"), f"{UNITS}/home.mount": MountUnit("/home")})
    assert storage.client_plan(sample(), NODES[3], old).absent == ("/etc/systemd/system/old.mount",)
    none = storage.client_plan(sample(storage=()), NODES[3], old)
    assert (none.files, none.absent) == ((), (*old.units, *storage.WAITING)), "nothing waits for what is not mounted"
    disks = StorageState(units={f"{UNITS}/data.mount": MountUnit("/data")})
    assert storage.client_plan(sample(), NODES[1], disks).absent == ()


def test_what_is_mounted_otherwise_is_unmounted_first() -> None:
    """Other options, or a share that left; never what is as it should be, is not mounted, or is the server's disk."""
    good = ",".join(storage.CLIENT_OPTIONS)
    units = {
        f"{UNITS}/home.mount": MountUnit("/home", "vers=4.2"),
        f"{UNITS}/data.mount": MountUnit("/data", good),
        f"{UNITS}/old.mount": MountUnit("/old", good),
        f"{UNITS}/gone.mount": MountUnit("/gone", good),
    }
    mounts = {path: Mount("10.0.0.2:" + path, "nfs4") for path in ("/home", "/data", "/old")}
    found = StorageState(mounts=mounts, units=units)
    assert storage.outdated(sample(), NODES[3], found) == {
        "/home": "is to be mounted with other options",
        "/old": "is not to be mounted any more",
    }
    served = StorageState(
        mounts={"/data": Mount("/dev/sdc", "ext4")}, units={f"{UNITS}/data.mount": MountUnit("/data")}
    )
    assert storage.outdated(sample(), NODES[1], served) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_who_is_in_the_way_of_unmounting_is_named(tmp_path: Path) -> None:
    """A mount in use is left as it is, with one sentence about who uses it; an unused one goes."""
    place = tmp_path / "data"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place)], check=True)
    command = ["sh", "-c", unmount_command(str(place), "is to be mounted with other options", "n1")]
    try:
        with subprocess.Popen(["sleep", "60"], cwd=place) as user:
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            user.terminate()
        assert done.returncode == 1
        assert f"runs sleep ({user.pid}); end what uses it" in done.stderr
        assert os.path.ismount(place)
        assert subprocess.run(command, check=False).returncode == 0
        assert not os.path.ismount(place)
        assert subprocess.run(command, check=False).returncode == 0, "again"
    finally:
        subprocess.run(["umount", str(place)], check=False, capture_output=True)


def test_units_are_read_from_their_files(tmp_path: Path) -> None:
    """Only klaster's own, with place and options; the fact's own shell line reads them."""
    (tmp_path / "home.mount").write_text("# Written by klaster.\n[Mount]\nWhere=/home\nOptions=vers=4.2,hard\n")
    (tmp_path / "other.mount").write_text("[Mount]\nWhere=/x\n")
    command = StorageHere().command(paths=(), disks=()).replace(UNITS, str(tmp_path))
    lines = subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True).stdout.splitlines()
    assert parse_storage(lines).units == {f"{tmp_path}/home.mount": MountUnit("/home", "vers=4.2,hard")}


def test_what_must_be_mounted_depends_on_the_node() -> None:
    """The health check and monitoring look for a folder on its clients, never on the server that has it itself."""
    some = sample(storage=(*SHARES, External(path="/nas", fstype="lustre", on=("compute",))))
    assert expected_mounts(some, NODES[1]) == []
    assert expected_mounts(some, NODES[0]) == [("/home", "nfs4")]
    assert expected_mounts(some, NODES[2]) == [
        ("/nas", "lustre"),
        ("/home", "nfs4"),
        ("/data", "nfs4"),
        ("/scratch", "ext4"),
    ]


def test_quotas_are_asked_of_the_disk_only_if_somebody_has_one() -> None:
    """The mount of a disk has quota options exactly when a quota is declared."""
    unit = "/etc/systemd/system/data.mount"
    assert "quota" not in content(storage.server_plan(sample()), unit)
    limited = sample(teams=(Team(name="red", quota_gib=5),))
    assert "Options=nosuid,nodev,noatime,usrquota,grpquota\n" in content(storage.server_plan(limited), unit)


# --- what a mount would hide -------------------------------------------------------------------------------------


def test_the_way_in_is_never_hidden() -> None:
    """An account that deploys and has its home below a folder to be mounted stops the run, with the remedy."""
    by_alex = sample(ssh=Ssh(user="alex"))
    found = StorageState(accounts={"alex": "/home/alex", "root": "/root"}, local={"/home": ("alex",)})
    (said,) = storage.refusals(by_alex, NODES[2], found)
    assert "usermod -m -d /var/lib/alex alex" in said
    served = StorageState(found.mounts, found.accounts, found.local, {"/dev/sdc": Disk("ext4")})
    assert storage.refusals(by_alex, NODES[1], served) == [], "the server's own folder is not hidden"


def test_files_below_a_mount_point_are_found_first() -> None:
    """Local homes with something in them are named, and the accounts they belong to; empty ones are nothing."""
    found = StorageState(accounts={"desk": "/home/desk"}, local={"/home": ("desk", "old")})
    (said,) = storage.refusals(sample(), NODES[2], found)
    assert "/home of n1 holds desk, old" in said
    assert "desk: usermod -m -d" in said
    assert storage.refusals(sample(), NODES[2], StorageState()) == []


def test_a_disk_to_be_served_needs_a_file_system_of_yours() -> None:
    """A disk that is not there, or is blank, is refused on the server, and not formatted."""
    assert "no disk /dev/sdc" in storage.refusals(sample(), NODES[1], StorageState())[0]
    blank = StorageState(disks={"/dev/sdc": Disk(blank=True)})
    assert "klaster makes none" in storage.refusals(sample(), NODES[1], blank)[0]


def test_another_mount_in_the_place_is_refused_and_the_own_one_is_not() -> None:
    """What is mounted there must be the server's folder, whatever the path looks like."""
    other = StorageState(mounts={"/home": Mount("/dev/sda3", "ext4")})
    own = StorageState(mounts={"/home": Mount("10.0.0.2:/home", "nfs4")})
    assert "unmount it" in storage.refusals(sample(), NODES[2], other)[0]
    assert storage.refusals(sample(), NODES[2], own) == []


LINES = """\
M|10.0.0.2:/home /home nfs4 rw,nosuid,vers=4.2 0 0
U|alex:x:1000:1000:Alex:/home/alex:/bin/bash
L|/data|results
W|/etc/systemd/system/home.mount|/home|vers=4.2,hard
D|/dev/sdb
K|/dev/sdb|DEVNAME=/dev/sdb
K|/dev/sdb|LABEL=photos
K|/dev/sdb|TYPE=ext4
C|/dev/sdb|
C|/dev/sdb|/dev/sdb1 /mnt
Z|/dev/sdb|1
D|/dev/sdc
C|/dev/sdc|
Z|/dev/sdc|0
"""


def test_the_state_of_storage_is_read() -> None:
    """Mounts, homes, local content, units and disks come out of their tagged lines."""
    found = parse_storage(LINES.splitlines())
    assert found.mounts["/home"] == Mount("10.0.0.2:/home", "nfs4", ("rw", "nosuid", "vers=4.2"))
    assert found.accounts == {"alex": "/home/alex"}
    assert found.local == {"/data": ("results",)}
    assert found.units == {f"{UNITS}/home.mount": MountUnit("/home", "vers=4.2,hard")}
    assert found.disks["/dev/sdb"] == Disk("ext4", "photos", "", False, ("/dev/sdb1 /mnt",))
    assert found.disks["/dev/sdc"].blank


# --- scratch -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("disk", "word"),
    [
        (None, "has no disk"),
        (Disk(fstype="ext4", label="photos"), 'a file system ext4 "photos"'),
        (Disk(fstype="xfs", label="klaster-scratch"), "a file system xfs"),
        (Disk(table="gpt", used=("/dev/sdb1 /",)), "a partition table (gpt); in use: /dev/sdb1 /"),
        (Disk(fstype="LVM2_member"), "LVM2_member"),
        (Disk(), "data at its begin or end"),
    ],
)
def test_a_disk_with_anything_on_it_is_refused(disk: Disk | None, word: str) -> None:
    """Scratch is made on a blank disk only; everything else is one sentence that says what is there."""
    assert word in refuse_disk("/dev/sdb", "n1", disk)


def test_a_blank_disk_and_an_own_one_are_taken() -> None:
    """Nothing is said of a blank disk, nor of one that has klaster's label."""
    assert refuse_disk("/dev/sdb", "n1", Disk(blank=True)) == ""
    assert refuse_disk("/dev/sdb", "n1", Disk(fstype="ext4", label="klaster-scratch", used=("/scratch",))) == ""


def test_nothing_is_made_on_a_disk_that_was_filled_meanwhile(tmp_path: object) -> None:
    """The command looks at the disk once more before it makes a file system."""
    disk = f"{tmp_path}/disk"
    subprocess.run(["sh", "-c", f"truncate -s 8M {disk} && mkfs.ext4 -q -L photos {disk}"], check=True)
    done = subprocess.run(["sh", "-c", make_command(disk)], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, f"{disk} is not blank any more\n")
    label = subprocess.run(["blkid", "-p", "-o", "value", "-s", "LABEL", disk], check=True, capture_output=True)
    assert label.stdout.strip() == b"photos"


# --- teams and quotas --------------------------------------------------------------------------------------------


def team_cluster() -> Cluster:
    users = (
        User(name="alex", uid=10_001, teams=("red",), quota_gib=3),
        User(name="ada", uid=10_003, teams=("blue",), administrator=True),
    )
    teams = (Team(name="red", gid=70_001, readers=("blue", "ada"), quota_gib=10), Team(name="blue", gid=70_002))
    return with_people(nodes=NODES, storage=SHARES, users=users, teams=teams)


def test_a_teams_folder_is_its_members_and_open_to_its_readers() -> None:
    """Set-gid, closed to others, and readers in the access list of the folder and of all that is made in it."""
    red, blue, public = team_folders(team_cluster())
    assert (red.path, red.owner, red.mode) == ("/data/red", "0:70001", "2770")
    assert {"group:70002:r-x", "user:10003:r-x", "default:group:70002:r-x", "other::---"} <= set(red.acl)
    assert not any("70001" in entry for entry in blue.acl)
    assert (public.path, public.mode) == ("/data/public", "775")
    assert {"other::r-x", "user:10003:rwx"} <= set(public.acl)


def test_folders_that_are_right_are_left_alone() -> None:
    """What getfacl and stat say of a folder as it is wanted leads to no command; a file in its place is refused."""
    wanted = team_folders(team_cluster())
    right = {space.path: Folder(space.owner, space.mode, space.acl) for space in wanted}
    assert space_commands(wanted, right) == []
    first = space_commands(wanted, {**right, "/data/red": Folder("0:0", "755")})
    assert len(first) == 1
    assert first[0].endswith("chmod 2770 /data/red")
    (refused,) = space_commands(wanted, {**right, "/data/red": Folder("0:0", "regular file")})
    assert refused.endswith("exit 1")


def test_folders_are_read() -> None:
    """Owner and mode come from stat, the entries by number from getfacl."""
    lines = ["S|/data/red|0:70001|2770|directory", "A|/data/red|user::rwx", "A|/data/red|", "S|/data/x|0:0|644|fifo"]
    assert parse_folders(lines) == {
        "/data/red": Folder("0:70001", "2770", ("user::rwx",)),
        "/data/x": Folder("0:0", "fifo"),
    }


def test_quotas_are_set_where_they_are_possible() -> None:
    """Limits that differ are set in KiB, counted ones are turned on, and a file system that can't says why."""
    wanted = wanted_quotas(team_cluster())
    assert wanted["/home"] == {("user", 10_001): 3, ("user", 10_003): 0}
    on = QuotaState("ext4", "/data", {"user", "group"}, set(), {("user", 10_001): 3 * KIB_A_GIB, ("user", 10_003): 9})
    off = QuotaState("ext4", "/")
    assert quota_commands(wanted, {"/data": on, "/home": off}) == [
        "setquota -u 10003 0 0 0 0 /data",
        f"setquota -g 70001 {10 * KIB_A_GIB} {10 * KIB_A_GIB} 0 0 /data",
    ]
    assert "tune2fs -O quota" in cannot("/home", off)
    counted = QuotaState("ext4", "/data", set(), {"user", "group"})
    assert quota_commands({"/data": {}}, {"/data": counted}) == ["quotaon -ug /data"]
    assert wanted_quotas(sample()) == {}


def test_inventories_that_cannot_be_are_refused() -> None:
    """Two servers, a folder of the system, a folder in a folder, a quota without a place: one sentence each."""
    two = (*NODES, Node(name="n3", address="10.0.0.5", roles=("storage",)))
    for changes, word in (
        ({"nodes": two}, 'at most one node has the role "storage"'),
        ({"storage": (Nfs(path="/etc"),)}, "belongs to each node's own system"),
        ({"storage": (Nfs(path="/data"), Nfs(path="/data/x"))}, "lies in /data"),
        ({"teams": (Team(name="red", quota_gib=1),), "storage": (Nfs(path="/data"),)}, "teams=True"),
        ({"teams": (Team(name="red", readers=("bleu",)), Team(name="blue"))}, 'mean "blue"'),
        ({"storage": (Nfs(path="/a", teams=True), Nfs(path="/b", teams=True))}, "both /a and /b"),
    ):
        with pytest.raises(InventoryError, match=word):
            sample(**changes)


def test_a_cluster_survives_its_text_form() -> None:
    """The kinds of storage are told apart when a cluster is read back, as the lab and every run do."""
    some = team_cluster()
    assert Cluster(**some.model_dump(mode="json")).storage == some.storage


QUOTAS = """\
F|/data|ext4 /data
O|/data|group quota on /data (/dev/ubdc) is on (enforced)
O|/data|user quota on /data (/dev/ubdc) is on (accounting)
user|/data|#10001    --      20       0 1048576              5     0     0
group|/data|#70001    +-      20       5 2097152              5     0     0
"""


def test_quotas_are_read() -> None:
    """What is enforced, what is only counted, and the hard limits."""
    state = parse_quotas(QUOTAS.splitlines())["/data"]
    assert (state.on, state.accounted) == ({"group"}, {"user"})
    assert state.limits == {("user", 10_001): 1_048_576, ("group", 70_001): 2_097_152}


def test_the_firewall_lets_nodes_reach_their_server() -> None:
    """NFS's one port is open to the nodes on the server only."""
    rule = 'ip saddr @nodes tcp dport 2049 accept comment "NFS"'
    assert [rule in firewall.rules(sample(), node) for node in NODES] == [False, True, False, False]
