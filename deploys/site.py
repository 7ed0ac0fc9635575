"""Bring every machine to the declared state: the ordered list of roles.

pyinfra orders the operations of each host, not of all: an operation that every host has keeps those before it apart
from those after it. Where a role has none, a barrier stands (tests/roles/test_order.py holds this against pyinfra).
"""

from roles import (
    accounting,
    accounts,
    backup,
    base,
    containers,
    fabric,
    firewall,
    gpu,
    grafana,
    hardware,
    health,
    homes,
    identity,
    logs,
    monitoring,
    munge,
    nightly,
    registry,
    secrets,
    slurm,
    storage,
    training,
)
from roles.facts.site import fast_connection
from roles.operations.barrier import barrier
from roles.operations.summary import summarise_at_end

fast_connection()
summarise_at_end(__file__)
hardware.deploy()
base.deploy()
secrets.deploy()
firewall.deploy()
gpu.deploy()
hardware.deploy_cards()
fabric.deploy()
homes.look()
storage.deploy()
homes.deploy()
identity.deploy()
munge.deploy()
health.deploy()
accounting.deploy()
slurm.deploy()
barrier(name="Slurm runs")
accounts.deploy()
backup.deploy()
registry.deploy()
containers.deploy()
training.deploy()
monitoring.deploy()
nightly.deploy()
logs.deploy()
grafana.deploy()
