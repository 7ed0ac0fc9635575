"""Accounting and accounts: inventory in → slurm.conf, sacctmgr commands and the guard of log-ins out."""

from __future__ import annotations

import re

import pytest

from inventory.errors import InventoryError
from inventory.model import Limits, Partition, Slurm, Team, User
from inventory.shares import allowed_accounts, partitions, shares
from roles import accounting, accounts, slurm
from roles.facts.slurm_accounts import AccountsState, mebibytes, minutes, parse_accounts
from tests.roles.sample import cluster, found, gpu, lock
from tests.roles.sample_people import with_people

SHOWN = [
    "Q|normal|||||",
    "Q|red|cpu=8,mem=64G|||||",
    "Q|red|cpu=8,mem=64G||||",
    "Q|blue|||||",
    "A|root", "A|klaster", "A|red", "A|blue",
    "S|root|||||||normal|", "S|klaster|||||||normal|", "S|klaster|klaster||||||normal|",
    "S|klaster||||||normal|", "S|klaster|klaster|||||normal|",
    "S|red||||||red|red", "S|blue||||||blue|blue",
    "S|red|alex|||||red|red",
    "S|red|kim|gres/gpu=1|||01:30:00|red|red",
    "S|blue|kim|gres/gpu=1|||01:30:00|blue|blue",
    "S|blue|ada|||||blue|blue",
    "U|klaster|klaster", "U|alex|red", "U|kim|blue", "U|ada|blue",
]  # fmt: skip
"""sacctmgr -nP after a run (lines with a wrong number of cells are skipped)."""


def test_a_second_run_changes_nothing() -> None:
    """What sacctmgr shows after a run needs no command."""
    assert accounts.commands("c", shares(with_people(), gpus=True), parse_accounts(SHOWN)) == []


def test_everything_is_made_from_nothing() -> None:
    """QOS before accounts before people before default accounts; limits in Slurm's words."""
    made = accounts.commands("c", shares(with_people(), gpus=True), AccountsState())
    text = "\n".join(made)
    assert re.search(r"modify qos red set GrpTRES=cpu=8,mem=65536$", text, re.M)
    assert "modify account red where cluster=c set qos=red defaultqos=red" in text
    assert "add user kim account=blue cluster=c" in text
    assert re.search(r"name=kim account=red cluster=c set MaxWall=90 GrpTRES=gres/gpu=1$", text, re.M)
    order = [text.index(words) for words in ("add qos red", "add account red", "add user alex", "defaultaccount=red")]
    assert order == sorted(order)


def test_gpus_are_not_mentioned_before_slurm_counts_them() -> None:
    """sacctmgr refuses a TRES it does not know: without a locked card the limit waits."""
    made = accounts.commands("c", shares(with_people(), gpus=False), AccountsState())
    assert "gres/gpu" not in "\n".join(made)


def test_a_limit_that_is_taken_out_is_lifted() -> None:
    """A limit of before that the inventory no longer names becomes -1."""
    free = with_people(teams=(Team(name="red"), Team(name="blue")))
    made = accounts.commands("c", shares(free, gpus=True), parse_accounts(SHOWN))
    assert made == ["sacctmgr -i -Q modify qos red set GrpTRES=cpu=-1,mem=-1"]


def test_who_leaves_may_submit_nothing_and_loses_no_history() -> None:
    """A person taken out of a team or the inventory may submit nothing there; nothing is deleted, once is enough."""
    before = with_people()
    kim = before.users[1].model_copy(update={"teams": ("red",)})
    after = with_people(users=(before.users[0], kim))
    made = accounts.commands("c", shares(after, gpus=True), parse_accounts(SHOWN))
    assert made == [
        "sacctmgr -i -Q modify user where name=kim cluster=c set defaultaccount=red",
        "sacctmgr -i -Q modify user where name=ada account=blue cluster=c set MaxJobs=0 MaxSubmitJobs=0",
        "sacctmgr -i -Q modify user where name=kim account=blue cluster=c set MaxJobs=0 MaxSubmitJobs=0",
    ]
    closed = [line.replace("blue|ada|||", "blue|ada||0|0") for line in SHOWN]
    again = accounts.commands("c", shares(after, gpus=True), parse_accounts(closed))
    assert not any("name=ada" in command for command in again)
    assert not any("delete" in command for command in made)


def test_who_comes_back_may_submit_again() -> None:
    """A declared person whose share was closed is opened again."""
    closed = [line.replace("blue|ada|||", "blue|ada||0|0") for line in SHOWN]
    made = accounts.commands("c", shares(with_people(), gpus=True), parse_accounts(closed))
    assert made == ["sacctmgr -i -Q modify user where name=ada account=blue cluster=c set MaxJobs=-1 MaxSubmitJobs=-1"]


@pytest.mark.parametrize(
    ("text", "mib"), [("64G", "65536"), ("512M", "512"), ("1T", "1048576"), ("100", "100"), ("1.50G", "1536")]
)
def test_memory_is_read_in_one_unit(text: str, mib: str) -> None:
    """Slurm's units become MiB."""
    assert mebibytes(text) == mib


def test_times_are_read_in_minutes() -> None:
    """Slurm's days, hours, minutes and seconds become minutes."""
    assert minutes("01:30:00") == 90
    assert minutes("2-10:00:00") == 2 * 1440 + 600


def _slurm_conf(**changes: object) -> str:
    tree = slurm.controller_plan(with_people(**changes), lock(n1=found(), n2=found(gpus=(gpu(0), gpu(1)))))
    return next(file.content for file in tree.files if file.path == "/etc/slurm/slurm.conf")


def test_slurm_enforces_accounts_only_where_there_are_teams() -> None:
    """With teams a job needs an account and is held to limits; without them slurm.conf is as before."""
    conf = _slurm_conf()
    assert "AccountingStorageEnforce=associations,limits,qos" in conf
    assert "AccountingStorageTRES=gres/gpu" in conf
    assert "DefMemPerCPU=3800" in conf
    bare = slurm.controller_plan(cluster(), lock(n1=found()))
    text = next(file.content for file in bare.files if file.path == "/etc/slurm/slurm.conf")
    for word in ("Accounting", "Priority", "Preempt", "DefMem", "AllowAccounts"):
        assert word not in text


def test_each_team_has_a_partition_of_its_own() -> None:
    """A team without a declared partition of its name gets one; others may not use it, certification may."""
    conf = _slurm_conf()
    assert re.search(r"PartitionName=red Nodes=n1,n2 .*AllowAccounts=red,klaster State=UP", conf)
    assert re.search(r"PartitionName=all .*MaxTime=INFINITE State=UP", conf)
    declared = with_people(slurm=Slurm(partitions=(Partition(name="red", nodes=("n1",)),)))
    assert [one.name for one in partitions(declared)] == ["red", "blue"]
    assert allowed_accounts(declared, declared.slurm.partitions[0]) == ("red", "klaster")


def test_partitions_carry_labels_teams_and_priority() -> None:
    """prod goes before dev, and takes its nodes where preemption is on."""
    dev, prod = Partition(name="dev"), Partition(name="prod", teams=("red", "blue"), priority=5)
    conf = _slurm_conf(slurm=Slurm(partitions=(dev, prod), preempt="requeue"))
    assert re.search(r"PartitionName=prod .*AllowAccounts=red,blue,klaster PriorityTier=5", conf)
    assert "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE" in conf


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"slurm": Slurm(partitions=(Partition(name="p", teams=("rde",)),))}, 'mean "red"'),
        ({"slurm": Slurm(preempt="requeue")}, "does nothing"),
        ({"slurm": Slurm(partitions=(Partition(name="red", teams=("blue",)),))}, "named like a team that may not"),
        ({"teams": (Team(name="red", gid=70_005), Team(name="blue", gid=70_005))}, "both have the gid"),
        ({"teams": (Team(name="red"), Team(name="blue"), Team(name="normal"))}, "something of Slurm"),
        ({"nodes": cluster().nodes[:2]}, "no node declares one"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict[str, object], words: str) -> None:
    """Teams that do not exist, limits of cards nobody has and preemption without priorities are one sentence each."""
    with pytest.raises(InventoryError, match=words):
        with_people(**changes)


def test_the_shorter_time_limit_of_a_team_counts() -> None:
    """A team's and its members' longest job become one MaxWall: the shorter."""
    team = Team(name="red", limits=Limits(job_minutes=600), member_limits=Limits(job_minutes=60, cpus=2))
    user = User(name="alex", uid=10_001, teams=("red",))
    settings = shares(with_people(teams=(team,), users=(user,)), gpus=True).qos["red"]
    assert settings["MaxWall"] == "60"
    assert settings["MaxTRESPerUser/cpu"] == "2"


def test_the_database_needs_no_password() -> None:
    """slurmdbd comes in through the socket as its system account; its file names no secret."""
    files = {file.path: file for file in accounting.plan(with_people()).files}
    conf = files["/etc/slurm/slurmdbd.conf"]
    assert "StoragePass" not in conf.content
    assert (conf.mode, conf.owner) == ("600", "slurm")
    assert "unix_socket" in accounting.STATEMENTS
    assert "bind-address = 127.0.0.1" in files["/etc/mysql/mariadb.conf.d/60-klaster.cnf"].content


PAM = (
    "auth x\n@include common-auth\naccount required pam_nologin.so\n@include common-account\n@include common-session\n"
)


def test_the_guard_lets_administrators_in_first() -> None:
    """After the usual checks: administrators and whoever deploys, then whoever has a job; other lines stay."""
    some = with_people()
    tree = accounts.guard_plan(some, some.node("n1"), True, PAM)
    access, pam = (file.content for file in tree.files)
    assert [line for line in access.splitlines() if line.startswith("+")] == [
        "+:root:ALL", "+:klaster:ALL", "+:ada:ALL", "+:(sudo):ALL",
    ]  # fmt: skip
    assert access.splitlines()[-1] == "-:ALL:ALL"
    lines = pam.splitlines()
    assert lines.index("@include common-account") < lines.index(accounts.BEGIN)
    assert "account required pam_slurm_adopt.so" in lines
    assert [line for line in PAM.splitlines() if line not in lines] == []
    assert accounts.guard_plan(some, some.node("n1"), True, pam) == tree


def test_without_cgroups_a_job_is_needed_but_nobody_is_put_into_it() -> None:
    """pam_slurm_adopt needs cgroups; without them pam_slurm still asks for a job."""
    some = with_people()
    pam = accounts.guard_plan(some, some.node("n1"), False, PAM).files[1].content
    assert "account required pam_slurm.so" in pam
    assert "account required pam_slurm_adopt.so" not in pam


def test_people_log_in_on_the_controller() -> None:
    """The guard is on nodes that only compute."""
    some = with_people()
    assert accounts.is_guarded(some.node("n1"))
    assert not accounts.is_guarded(some.controller)
