"""Verdicts on people: the same on every node, their directory and accounting run, and limits are enforced."""

from __future__ import annotations

from typing import Any

from inventory.model import Cluster, Ldap, Node
from validation.checks.node import (
    Finding,
    Subject,
    answer,
    failed,
    inconclusive,
    not_applicable,
    output,
    passed,
    problem,
    units,
)

INVENTORY = "inventory"
NO_ROOM = ("Nodes required", "ReqNodeNotAvail", "Resources", "Priority", "BeginTime", "PartitionDown")
"""Reasons to wait that say nothing about a limit: Slurm looks at the nodes first."""


def asked_units(cluster: Cluster, node: Node) -> tuple[str, ...]:
    """Units that people need on a node."""
    if cluster.people is None:
        return ()
    found = ["sssd.service"]
    if "controller" in node.roles:
        found += ["slapd.service"] if isinstance(cluster.people, Ldap) else []
        found += ["mariadb.service", "slurmdbd.service"] if cluster.teams else []
    return tuple(found)


def over_limit_jobs(cluster: Cluster, node: Node) -> list[dict[str, Any]]:
    """Jobs for the probe on the controller to submit: one a team with a limit of processors, one more than that."""
    if "controller" not in node.roles:
        return []
    jobs = []
    for team in cluster.teams:
        member = next((user for user in cluster.users if team.name in user.teams), None)
        limits = (team.limits.cpus, team.member_limits.cpus, member.limits.cpus if member else None)
        known = [limit for limit in limits if limit is not None]
        if member and known:
            jobs.append({"team": team.name, "user": member.name, "cpus": min(known) + 1})
    return jobs


def people_services(subject: Subject) -> Finding:
    wanted = asked_units(subject.cluster, subject.node)
    if not wanted:
        return not_applicable("no team is declared")
    found = units(subject.probe)
    states = {unit: found.get(unit, {}).get("ActiveState", "unknown") for unit in wanted}
    required = f"active: {', '.join(wanted)}"
    down = {unit: state for unit, state in states.items() if state != "active"}
    if not down:
        return passed(required, required, "people of the inventory")
    first = next(iter(down))
    short = first.removesuffix(".service")
    measured = ", ".join(f"{unit} is {state}" for unit, state in down.items())
    remedy = f"on {subject.name}: systemctl status {first}; journalctl -u {first} -n 50; systemctl start {first}"
    culprit = "" if short == "sssd" else f"{short} on {subject.name}"
    return failed(
        measured, required, "people of the inventory", f"{short}-down", remedy, culprit_kind="service", culprit=culprit
    )


def people(subject: Subject) -> Finding:
    """uid, gid and teams of every declared person: a file written on one node is read on another by the same people."""
    users = subject.cluster.users
    if not users:
        return not_applicable("no person is declared")
    required = f"{len(users)} people with the inventory's uid and teams"
    if "no answer" in problem(subject.probe, "people"):
        remedy = f"on {subject.name}: systemctl restart sssd; is the directory up? See check people-services"
        return failed("looking people up does not end", required, INVENTORY, "people-hang", remedy)
    found = answer(subject.probe, "people")
    missing = [user.name for user in users if not found.get(user.name)]
    if missing:
        return _missing(subject, missing, required)
    for user in users:
        uid, groups = found[user.name]["uid"], set(found[user.name]["groups"])
        if uid != user.uid:
            remedy = f"a local account hides the person: look at getent -s files passwd {user.name} and rename it"
            return failed(f"{user.name} has uid {uid}", f"uid {user.uid}", INVENTORY, "person-uid", remedy)
        if not set(user.teams) <= groups:
            lacks = ", ".join(sorted(set(user.teams) - groups))
            remedy = f"on {subject.name}: sss_cache -E; if it stays: run the deploy again"
            return failed(f"{user.name} is not in {lacks}", required, INVENTORY, "person-teams", remedy)
    return passed(f"{len(users)} people", required, INVENTORY)


def _missing(subject: Subject, missing: list[str], required: str) -> Finding:
    """Unknown people: the directory's fault if it is down, else the node's."""
    head = subject.cluster.controller.name
    measured = f"unknown: {', '.join(missing[:5])}" + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    probe = subject.fleet.probes.get(head)
    own = isinstance(subject.cluster.people, Ldap)
    asked = own and probe is not None and not problem(probe, "services")
    if asked and probe and units(probe).get("slapd.service", {}).get("ActiveState") != "active":
        remedy = f"on {head}: systemctl status slapd; systemctl start slapd"
        culprit = f"slapd on {head}"
        return failed(measured, required, INVENTORY, "slapd-down", remedy, culprit_kind="service", culprit=culprit)
    remedy = f"on {subject.name}: systemctl restart sssd; journalctl -u sssd -n 30; run the deploy again"
    return failed(measured, required, INVENTORY, "people-unknown", remedy)


def accounts(subject: Subject) -> Finding:
    """On the controller: each person may submit jobs for each of their teams."""
    wanted = {(team, user.name) for user in subject.cluster.users for team in user.teams}
    if "controller" not in subject.node.roles or not wanted:
        return not_applicable("is asked on the controller, where people are declared")
    required = f"{len(wanted)} memberships in Slurm"
    if _accounting_is_down(subject):
        return inconclusive("slurmdbd is not running", "see check people-services", required, INVENTORY)
    rows = [line.split("|") for line in output(subject.probe, "slurm_accounts").splitlines()]
    found = {(row[0], row[1]): row[2] for row in rows if len(row) > 2 and row[1]}
    missing = sorted(wanted - set(found))
    if missing:
        shown = ", ".join(f"{user} in {team}" for team, user in missing[:5])
        return failed(f"not in Slurm: {shown}", required, INVENTORY, "accounts", "run the deploy again")
    extra = [f"{user} in {team}" for (team, user), submit in found.items() if _may_still(subject, team, user, submit)]
    advice = f"may submit jobs without being declared: {', '.join(extra[:5])}" if extra else ""
    return passed(f"{len(wanted)} memberships", required, INVENTORY, advice=advice)


def _may_still(subject: Subject, team: str, user: str, most_submitted: str) -> bool:
    declared = any(one.name == user and team in one.teams for one in subject.cluster.users)
    return team in {one.name for one in subject.cluster.teams} and not declared and most_submitted != "0"


def _accounting_is_down(subject: Subject) -> bool:
    return units(subject.probe).get("slurmdbd.service", {}).get("ActiveState") != "active"


def team_limits(subject: Subject) -> Finding:
    """On the controller: a job of one processor more than a team may have stays pending, and for that reason."""
    jobs = over_limit_jobs(subject.cluster, subject.node)
    if "controller" not in subject.node.roles:
        return not_applicable("is tried on the controller")
    if not jobs:
        return not_applicable("no team has a limit of processors")
    required = "a job over the limit waits with a reason QOS… or Assoc…"
    if _accounting_is_down(subject):
        return inconclusive("slurmdbd is not running", "see check people-services", required, INVENTORY)
    found = answer(subject.probe, "over_limit")
    seen, untried = [], []
    for job in jobs:
        said = found.get(job["team"], {"error": "was not asked"})
        state, reason = said.get("state", ""), said.get("reason", "")
        what = f"{job['team']}: {job['cpus']} processors"
        if "error" in said:
            untried.append(f"{what}: {said['error']}")
        elif state == "PENDING" and reason.startswith(("QOS", "Assoc")):
            seen.append(f"{what}: {reason}")
        elif state == "PENDING" and reason.startswith((*NO_ROOM, "None")):
            untried.append(f"{what}: {reason}")
        else:
            remedy = "scontrol show config | grep Enforce; sacctmgr show qos; run the deploy again"
            measured = f"{what}: {state} {reason}".strip()
            culprit = f"limits of team {job['team']}"
            return failed(
                measured, required, INVENTORY, "limit-not-enforced", remedy, culprit_kind="service", culprit=culprit
            )
    if not seen:
        return not_applicable(f"could not be tried (nodes not in service, or busy): {'; '.join(untried)}")
    return passed("; ".join(seen), required, INVENTORY, advice=f"not tried: {'; '.join(untried)}" if untried else "")
