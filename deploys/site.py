"""Bring every machine to the declared state: the ordered list of roles."""

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
barrier(name="Hardware is known")
base.deploy()
barrier(name="Base is done")
secrets.deploy()
barrier(name="Secrets are there")
firewall.deploy()
barrier(name="Firewall is up")
gpu.deploy()
hardware.deploy_cards()
fabric.deploy()
barrier(name="GPUs and networks are ready")
homes.look()
storage.deploy()
barrier(name="Shared folders are mounted")
homes.deploy()
identity.deploy()
barrier(name="People are known")
munge.deploy()
health.deploy()
accounting.deploy()
barrier(name="Accounting runs")
slurm.deploy()
barrier(name="Slurm runs")
accounts.deploy()
backup.deploy()
registry.deploy()
containers.deploy()
training.deploy()
barrier(name="The training environment is there")
monitoring.deploy()
nightly.deploy()
logs.deploy()
grafana.deploy()
