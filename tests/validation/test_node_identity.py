"""Verdicts on people: whom a missing person, a dead directory or a limit that does not hold is blamed on."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from inventory.hardware import HardwareLock
from inventory.model import Cluster, Limits, Network, Node, Team, User
from validation.checks import node_identity
from validation.checks.node import Finding, Gathered
from validation.model import Outcome

CLUSTER = Cluster(
    name="c",
    networks=(Network(name="lan", cidr="10.0.0.0/24", speed_gbps=1),),
    nodes=(Node(name="head", address="10.0.0.1", roles=("controller",)), Node(name="n1", address="10.0.0.2")),
    teams=(Team(name="red", limits=Limits(cpus=4), member_limits=Limits(cpus=2)), Team(name="blue")),
    users=(User(name="alex", uid=10_001, teams=("red",)), User(name="kim", uid=10_002, teams=("red", "blue"))),
)
PEOPLE = {
    "alex": {"uid": 10_001, "gid": 10_001, "groups": ["alex", "red"]},
    "kim": {"uid": 10_002, "gid": 10_002, "groups": ["kim", "blue", "red"]},
}
HELD_BACK = {"red": {"state": "PENDING", "reason": "QOSMaxCpuPerUserLimit"}}
ACCOUNTS = "red||\nred|alex|\nred|kim|\nblue|kim|\n"


def _units(*active: str, down: tuple[str, ...] = ()) -> dict[str, Any]:
    states = [(unit, "active") for unit in active] + [(unit, "failed") for unit in down]
    return {"ok": {"status": 0, "stdout": "\n\n".join(f"Id={u}.service\nActiveState={s}" for u, s in states)}}


def _shown(text: str) -> dict[str, Any]:
    return {"ok": {"status": 0, "stdout": text, "stderr": ""}}


def fleet(**changes: dict[str, Any]) -> Gathered:
    """A healthy head and n1; `head=` and `n1=` replace answers."""
    head = {
        "services": _units("sssd", "slapd", "mariadb", "slurmdbd"),
        "people": {"ok": PEOPLE},
        "slurm_accounts": _shown(ACCOUNTS),
        "over_limit": {"ok": HELD_BACK},
    }
    n1 = {"services": _units("sssd"), "people": {"ok": PEOPLE}}
    probes = {"head": {**head, **changes.get("head", {})}, "n1": {**n1, **changes.get("n1", {})}}
    return Gathered(CLUSTER, HardwareLock(), MappingProxyType(probes))


CHECKS = {
    "people": node_identity.people,
    "people-services": node_identity.people_services,
    "accounts": node_identity.accounts,
    "team-limits": node_identity.team_limits,
}


def finding(check: str, name: str = "head", **changes: dict[str, Any]) -> Finding:
    return CHECKS[check](fleet(**changes).subject(name))


@pytest.mark.parametrize("check", CHECKS)
def test_a_right_fleet_passes(check: str) -> None:
    """Everything as declared passes on the controller, and passes or does not apply on the other node."""
    assert finding(check).outcome is Outcome.PASS
    assert finding(check, "n1").outcome in (Outcome.PASS, Outcome.NOT_APPLICABLE)


def test_another_uid_is_the_nodes_own_fault() -> None:
    """A local account that hides a person is found on its node."""
    wrong = {**PEOPLE, "alex": {**PEOPLE["alex"], "uid": 1000}}
    found = finding("people", "n1", n1={"people": {"ok": wrong}})
    assert (found.outcome, found.cause, found.culprit) == (Outcome.FAIL, "person-uid", "")
    assert "alex has uid 1000" in found.measured


def test_a_missing_team_is_found() -> None:
    """A person whose team a node does not know can't reach the team's data there."""
    wrong = {**PEOPLE, "kim": {**PEOPLE["kim"], "groups": ["kim", "red"]}}
    found = finding("people", "n1", n1={"people": {"ok": wrong}})
    assert found.outcome is Outcome.FAIL
    assert "kim is not in blue" in found.measured


def test_unknown_people_are_the_directorys_fault_while_it_is_down() -> None:
    """With slapd dead a node that knows nobody is not blamed; with slapd running it is."""
    nobody = {"people": {"ok": {"alex": None, "kim": None}}}
    dead = {"services": _units("sssd", "mariadb", "slurmdbd", down=("slapd",))}
    found = finding("people", "n1", n1=nobody, head=dead)
    assert (found.culprit_kind, found.culprit) == ("service", "slapd on head")
    own = finding("people", "n1", n1=nobody)
    assert (own.culprit_kind, own.culprit, own.cause) == ("node", "", "people-unknown")


@pytest.mark.parametrize("unit", ["slapd", "slurmdbd", "mariadb"])
def test_a_dead_service_of_the_controller_is_named(unit: str) -> None:
    """The culprit is the service, so that no compute node is drained for it."""
    rest = [one for one in ("sssd", "slapd", "mariadb", "slurmdbd") if one != unit]
    found = finding("people-services", head={"services": _units(*rest, down=(unit,))})
    assert (found.outcome, found.culprit) == (Outcome.FAIL, f"{unit} on head")


def test_a_dead_sssd_is_its_nodes() -> None:
    """sssd is the node's own service."""
    found = finding("people-services", "n1", n1={"services": _units(down=("sssd",))})
    assert (found.outcome, found.culprit, found.cause) == (Outcome.FAIL, "", "sssd-down")


def test_a_membership_that_slurm_lacks_is_found() -> None:
    """A declared membership must be in slurmdbd; one that is not declared and still open is advice."""
    found = finding("accounts", head={"slurm_accounts": _shown(ACCOUNTS.replace("blue|kim|\n", ""))})
    assert found.outcome is Outcome.FAIL
    assert "kim in blue" in found.measured
    open_still = finding("accounts", head={"slurm_accounts": _shown(ACCOUNTS + "blue|alex|\nred|old|0\n")})
    assert open_still.outcome is Outcome.PASS
    assert "alex in blue" in open_still.advice
    assert "old" not in open_still.advice


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ({"state": "RUNNING", "reason": "None"}, Outcome.FAIL),
        ({"state": "gone", "reason": ""}, Outcome.FAIL),
        ({"state": "PENDING", "reason": "Dependency"}, Outcome.FAIL),
        ({"state": "PENDING", "reason": "AssocGrpCpuLimit"}, Outcome.PASS),
        ({"state": "PENDING", "reason": "Nodes required for job are DOWN"}, Outcome.NOT_APPLICABLE),
        ({"error": "Requested node configuration is not available"}, Outcome.NOT_APPLICABLE),
    ],
)
def test_a_limit_must_hold_a_job_back(said: dict[str, str], outcome: Outcome) -> None:
    """A job over the limit that runs, or waits for something else, is a failure; busy nodes are no verdict."""
    assert finding("team-limits", head={"over_limit": {"ok": {"red": said}}}).outcome is outcome


def test_the_job_that_is_tried_is_one_processor_too_large() -> None:
    """The smallest limit that holds for a member decides; a team without a limit is not tried."""
    assert node_identity.over_limit_jobs(CLUSTER, CLUSTER.controller) == [{"team": "red", "user": "alex", "cpus": 3}]
    assert node_identity.over_limit_jobs(CLUSTER, CLUSTER.node("n1")) == []


def test_without_accounting_nothing_is_decided() -> None:
    """While slurmdbd is down accounts and limits are undecided; the service has its own finding."""
    down = {"services": _units("sssd", "slapd", "mariadb", down=("slurmdbd",))}
    assert finding("accounts", head=down).outcome is Outcome.INCONCLUSIVE
    assert finding("team-limits", head=down).outcome is Outcome.INCONCLUSIVE
