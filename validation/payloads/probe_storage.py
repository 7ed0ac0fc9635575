"""The probe's questions to the server of shared folders; sent before probe.py, as one program with it."""

import re
from collections.abc import Callable

TYPE_CHECKING = False  # the real one is not in the smallest Python
if TYPE_CHECKING:
    from probe import command, text


def quotas(paths: list) -> dict:
    """For each path: which kinds of quotas its file system enforces, and hard limits in KiB, "user 10001" → number."""
    found = {}
    for path in paths:
        target = command("findmnt", "-nro", "TARGET", "-T", path)["stdout"].strip()
        state = command("quotaon", "-pug", target)["stdout"]
        on = re.findall(r"^(user|group) quota on .* is on(?! \(accounting)", state, re.M)
        limits = {}
        for kind in on:
            report = command("repquota", "-vn", f"--{kind}", target)["stdout"]
            rows = re.findall(r"^#(\d+)\s+\S+\s+\d+\s+\d+\s+(\d+)", report, re.M)
            limits.update({f"{kind} {number}": int(hard) for number, hard in rows})
        found[path] = {"on": on, "limits": limits}
    return found


def storage_questions(asked: dict) -> dict[str, Callable[[], object]]:
    """To whom folders are served, and which quotas are enforced."""
    return {"exports": lambda: text("/var/lib/nfs/etab"), "quotas": lambda: quotas(asked["quotas"])}
