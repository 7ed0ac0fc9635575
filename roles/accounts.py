"""Who may take what: Slurm accounts, QOS and limits from the inventory, and no log-in on a node without a job there."""

from __future__ import annotations

import shlex
from collections.abc import Generator

from pyinfra.api.operation import operation
from pyinfra.context import host

from inventory.hardware import HardwareLock
from inventory.model import DEPLOY_ACCOUNT, Cluster, Node
from inventory.shares import CLOSED, NO_LIMIT, OWN_ACCOUNTS, Settings, Shares, shares
from roles.facts import site
from roles.facts.confinement import with_cgroups
from roles.facts.slurm_accounts import AccountsState, SlurmAccounts
from roles.facts.sshd_pam import SshdPam
from roles.operations.configure import configure
from roles.operations.packages import packages
from roles.operations.template import render
from roles.operations.tree import File, Tree

SACCTMGR = "sacctmgr -i -Q"
BEGIN, END = "# klaster: begin", "# klaster: end"
ACCOUNT_STACK = "@include common-account"


# --- Slurm's accounts --------------------------------------------------------------------------------------------


def commands(cluster: str, wanted: Shares, found: AccountsState) -> list[str]:
    """sacctmgr commands from the found state to the wanted one; nothing is ever deleted, so history stays."""
    made = []
    for name, settings in wanted.qos.items():
        if name not in found.qos:
            made.append(f"{SACCTMGR} add qos {name}")
        if words := setting_words(settings, found.qos.get(name, {})):
            made.append(f"{SACCTMGR} modify qos {name} set {words}")
    for account, qos in wanted.accounts.items():
        if account not in found.accounts or (account, "") not in found.associations:
            made.append(
                f"{SACCTMGR} add account {account} cluster={cluster} organization=klaster description={account}"
            )
        old = found.associations.get((account, ""), {})
        if qos and (old.get("QOS"), old.get("DefaultQOS")) != (qos, qos):
            made.append(f"{SACCTMGR} modify account {account} where cluster={cluster} set qos={qos} defaultqos={qos}")
    for share in wanted.members:
        where = f"where name={share.user} account={share.account} cluster={cluster}"
        old = found.associations.get((share.account, share.user), {})
        if not old:
            made.append(f"{SACCTMGR} add user {share.user} account={share.account} cluster={cluster}")
        if words := setting_words(share.settings, old):
            made.append(f"{SACCTMGR} modify user {where} set {words}")
    for user, account in wanted.default_account.items():
        if found.default_account.get(user) != account:
            made.append(f"{SACCTMGR} modify user where name={user} cluster={cluster} set defaultaccount={account}")
    return made + _closing(cluster, wanted, found)


def _closing(cluster: str, wanted: Shares, found: AccountsState) -> list[str]:
    """Who is in an account without being declared there may submit nothing more to it."""
    members = {(share.account, share.user) for share in wanted.members}
    return [
        f"{SACCTMGR} modify user where name={user} account={account} cluster={cluster} set {words}"
        for (account, user), old in sorted(found.associations.items())
        if user and user not in OWN_ACCOUNTS and (account, user) not in members
        if (words := setting_words(CLOSED, old))
    ]


def setting_words(wanted: Settings, found: Settings) -> str:
    """`Name=value …` for the limits that differ; -1 takes a limit away."""
    plain: dict[str, str] = {}
    counted: dict[str, list[str]] = {}
    for name, value in wanted.items():
        if found.get(name, NO_LIMIT) != value:
            limit, _, kind = name.partition("/")
            if kind:
                counted.setdefault(limit, []).append(f"{kind}={value or -1}")
            else:
                plain[limit] = value or "-1"
    words = {**plain, **{limit: ",".join(parts) for limit, parts in counted.items()}}
    return " ".join(f"{limit}={shlex.quote(value)}" for limit, value in words.items())


@operation()
def slurm_accounts(cluster: Cluster) -> Generator[str, None, None]:
    """On the controller: accounts, QOS and limits as the inventory says."""
    found = host.get_fact(SlurmAccounts, cluster=cluster.name)
    made = commands(cluster.name, shares(cluster, gpus=counts_gpus(site.lock())), found)
    if not made:
        host.noop(f"{len(found.accounts)} accounts and {len(found.associations)} associations are as they should be")
    yield from made


def counts_gpus(lock: HardwareLock) -> bool:
    return any(node.gpus for node in lock.nodes.values())


# --- no log-in without a job -------------------------------------------------------------------------------------


def is_guarded(node: Node) -> bool:
    """A node that only computes; the controller is where people log in."""
    return "compute" in node.roles and "controller" not in node.roles


def exempt(cluster: Cluster, node: Node) -> tuple[str, ...]:
    """Who may always log in, in pam_access's words: whoever deploys must never be locked out."""
    administrators = (user.name for user in cluster.users if user.administrator)
    names = ("root", DEPLOY_ACCOUNT, node.ssh_user or cluster.ssh.user, *administrators)
    return (*dict.fromkeys(names), "(sudo)")


def guard_plan(cluster: Cluster, node: Node, confined: bool, sshd_pam: str) -> Tree:
    """sshd's account stack: administrators first, then whoever has a job here (adopted into it where cgroups are)."""
    values = {"exempt": exempt(cluster, node), "confined": confined}
    return Tree(
        (
            File("/etc/security/klaster-access.conf", render("accounts", "access.conf", values)),
            File(
                "/etc/pam.d/sshd",
                with_guard(sshd_pam, render("accounts", "pam-guard", values)),
                triggers=("pam-session",),
            ),
        )
    )


def with_guard(current: str, guard: str) -> str:
    """The file with our block after the usual account checks; other lines stay as the distribution has them."""
    kept, ours = [], False
    for line in current.splitlines():
        if line in (BEGIN, END):
            ours = line == BEGIN
        elif not ours:
            kept.append(line)
    if ACCOUNT_STACK not in kept:
        kept.append(ACCOUNT_STACK)
    at = kept.index(ACCOUNT_STACK) + 1
    return "\n".join([*kept[:at], BEGIN, *guard.strip().splitlines(), END, *kept[at:]]) + "\n"


def _guard_plan_here() -> Tree:
    cluster, lock = site.cluster(), site.lock()
    found = [lock.nodes[node.name] for node in cluster.compute_nodes if node.name in lock.nodes]
    return guard_plan(cluster, site.node(), with_cgroups(found), host.get_fact(SshdPam))


# systemd's own PAM module would take the log-in out of the job's cgroup again, into a session of its own.
GUARD_ACTIONS = {
    "pam-session": "if grep -q pam_slurm_adopt /etc/pam.d/sshd; then verb=--disable; else verb=--enable; fi; "
    "DEBIAN_FRONTEND=noninteractive pam-auth-update $verb systemd"
}


def deploy() -> None:
    cluster, node = site.cluster(), site.node()
    if not cluster.teams:
        return
    if "controller" in node.roles:
        slurm_accounts(name=f"Set accounts and limits{_in_words(cluster)}", cluster=cluster)
    if is_guarded(node):
        packages(name="Install the guard of log-ins", wanted=("libpam-slurm", "libpam-slurm-adopt"))
        configure(
            name="Let in administrators, and people with a job here", plan=_guard_plan_here, actions=GUARD_ACTIONS
        )


def _in_words(cluster: Cluster) -> str:
    """What will change, for the operation's name."""
    wanted = shares(cluster, gpus=counts_gpus(site.lock()))
    made = commands(cluster.name, wanted, host.get_fact(SlurmAccounts, cluster=cluster.name))
    words = dict.fromkeys(" ".join(_what(command)) for command in made)
    more = f" and {len(words) - 4} more" if len(words) > 4 else ""
    return f": {', '.join(list(words)[:4])}{more}" if words else ""


def _what(command: str) -> tuple[str, ...]:
    """`modify user where name=kim account=red … set …` → modify user kim in red."""
    verb, kind, *rest = command.removeprefix(f"{SACCTMGR} ").split(" set ")[0].split()
    named = dict(word.split("=", 1) for word in rest if "=" in word)
    name = named.get("name") or next(word for word in rest if word != "where")
    return (verb, kind, name, *(("in", named["account"]) if "account" in named else ()))
