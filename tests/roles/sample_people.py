"""A small cluster with two teams and three people for role tests."""

from __future__ import annotations

from inventory.model import Cluster, Limits, Team, User
from tests.roles.sample import cluster

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFake alex@laptop"


def with_people(**changes: object) -> Cluster:
    values: dict[str, object] = {
        "teams": (Team(name="red", limits=Limits(cpus=8, memory_gib=64)), Team(name="blue")),
        "users": (
            User(name="alex", uid=10_001, teams=("red",), ssh_keys=(KEY,)),
            User(name="kim", uid=10_002, teams=("blue", "red"), limits=Limits(gpus=1, job_minutes=90)),
            User(name="ada", uid=10_003, teams=("blue",), administrator=True),
        ),
    }
    return cluster(**{**values, **changes})
