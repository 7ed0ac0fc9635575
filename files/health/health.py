"""Look at this node for a second, on the node and without torch; drain it for what is wrong twice, through Slurm.

Slurm starts it on idle nodes every five minutes, before and after a job (check.j2). A check that breaks, or does not
end in time, says nothing about the node and drains nobody; nothing is lifted here, a certificate does that.
Usage: health.py health|prolog_slurmd|epilog_slurmd; exit status 10: unhealthy, and drained by klaster.
"""

from __future__ import annotations

import json
import os
import re
import sys
import syslog
import threading
import time
from typing import Any

from drain_policy import common_cause, drain_reason, is_ours, room
from health_checks import CHECKS, Config, Unknown, command

CONFIG = "/etc/klaster/health.json"
RESULT = "/run/klaster/health.json"
DRAINED = 10
DEADLINE_S, RETEST_AFTER_S = 1.2, 0.3
SLURM_S = 5.0
"""Only an unhealthy node asks slurmctld anything."""
OUT = {"DRAIN", "DOWN", "FAIL", "NOT_RESPONDING", "UNKNOWN", "MAINT", "POWERED_DOWN", "FUTURE"}
"""As validation/slurm_state.py: states in which a node takes no job."""

Answer = dict[str, Any]
"""{"fine": true}, {"cause", "seen"} or {"unknown": why}."""
States = dict[str, tuple[set[str], str]]
"""Node → (states, reason)."""


# --- asking all at once, and again -------------------------------------------------------------------------------


def ask(names: list[str], config: Config) -> dict[str, Answer]:
    """Each check's {"fine": …} or {"cause", "seen"} or {"unknown": why}, side by side, within the deadline."""
    answers: dict[str, Answer] = {}

    def one(name: str) -> None:
        try:
            problem = CHECKS[name](config)
            answers[name] = {"cause": problem[0], "seen": problem[1]} if problem else {"fine": True}
        except Exception as error:  # a broken check is a finding about the check
            answers[name] = {"unknown": str(error) or type(error).__name__}

    threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in names]
    deadline = time.monotonic() + DEADLINE_S
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return {name: answers.get(name, {"unknown": f"no end within {DEADLINE_S:g} s"}) for name in names}


def examine(config: Config) -> dict[str, Answer]:
    """All checks; what is wrong is asked again after a pause, and wrong only if it is wrong in the same way."""
    first = ask(list(CHECKS), config)
    wrong = [name for name, answer in first.items() if "cause" in answer]
    if wrong:
        time.sleep(RETEST_AFTER_S)
        for name, answer in ask(wrong, config).items():
            same = answer.get("cause") == first[name]["cause"]
            first[name] = answer if same else {"unknown": f"not seen again: {first[name]['seen']}"}
    return first


# --- acting through Slurm ----------------------------------------------------------------------------------------


def parse_nodes(shown: str) -> States:
    """Node → (states, reason), from `scontrol -o show nodes`."""
    nodes = {}
    for line in shown.splitlines():
        name, state = re.match(r"NodeName=(\S+)", line), re.search(r" State=(\S+)", line)
        reason = re.search(r" Reason=(.*?)(?: \[[^\]]*@[^\]]*\])?(?: [A-Z]\w*=|\s*$)", line)
        if name and state:
            nodes[name[1]] = (set(state[1].replace("*", "+NOT_RESPONDING").split("+")), reason[1] if reason else "")
    return nodes


def decide(config: Config, check: str, cause: str, nodes: States) -> str:
    """Why this node is not to be drained for it; an empty text if it is."""
    if config["node"] not in nodes:
        return "Slurm does not know this node"
    states, reason = nodes[config["node"]]
    if "DRAIN" in states:
        return f"drained already ({reason})"
    others = [said for name, (theirs, said) in nodes.items() if name != config["node"] and "DRAIN" in theirs]
    if common_cause(check, cause, others, len(nodes)):
        return "more than half of the nodes have the same: that is no node's own fault"
    out = sum(bool(theirs & OUT) for theirs, _ in nodes.values())
    if room(len(nodes), out, config["drain_share"]) < 1:
        return f"{out} of {len(nodes)} nodes are out of service already"
    return ""


def drain(config: Config, why: str, check: str, cause: str) -> tuple[str, bool]:
    """Drain this node if the policy lets it: what was done, and whether klaster's drain is now on it."""
    name = f"NodeName={config['node']}"
    try:
        nodes = parse_nodes(command("scontrol", "-o", "show", "nodes", timeout_s=SLURM_S))
        if refusal := decide(config, check, cause, nodes):
            return f"not drained: {refusal}", is_ours(refusal.removeprefix("drained already ("))
        reason = drain_reason(check, cause, why)
        command("scontrol", "update", name, "State=DRAIN", f"Reason={reason}", timeout_s=SLURM_S)
        nodes = parse_nodes(command("scontrol", "-o", "show", "nodes", timeout_s=SLURM_S))
        out = sum(bool(theirs & OUT) for theirs, _ in nodes.values())
        if room(len(nodes), out - 1, config["drain_share"]) < 1:  # others did the same at the same time
            command("scontrol", "update", name, "State=RESUME", timeout_s=SLURM_S)
            return "not drained: too many nodes at once", False
    except Unknown as error:
        return f"not drained: Slurm can't be told ({error})", False
    return f"drained: {reason}", True


def main(words: list[str]) -> int:
    began = time.monotonic()
    why = (words[0] if words else "health").partition("_")[0]
    with open(CONFIG, encoding="utf-8") as file:
        config = json.load(file)
    found = examine(config)
    seconds = time.monotonic() - began
    wrong = [(name, answer["cause"], answer["seen"]) for name, answer in found.items() if "cause" in answer]
    did, drained = drain(config, why, wrong[0][0], wrong[0][1]) if wrong else ("", False)
    for name, cause, seen in wrong:
        syslog.syslog(syslog.LOG_ERR, f"{why}: {name}: {cause}: {seen}")
    if wrong:
        syslog.syslog(syslog.LOG_ERR, f"{why}: {did}")
    write_result({"at": time.time(), "why": why, "seconds": round(seconds, 3), "checks": found, "did": did})
    return DRAINED if drained else 0


def write_result(document: dict[str, Any]) -> None:
    os.makedirs(os.path.dirname(RESULT), exist_ok=True)
    with open(f"{RESULT}.{os.getpid()}", "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
    os.replace(file.name, RESULT)


if __name__ == "__main__":
    status = 0
    syslog.openlog("klaster-health")
    try:
        status = main(sys.argv[1:])
    except Exception as error:
        syslog.syslog(syslog.LOG_ERR, f"the check broke, which says nothing about the node: {error!r}")
    os._exit(status)  # a check that hangs on a dead file server is left behind
