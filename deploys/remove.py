"""Take a node out (`--data remove=NODE`): its jobs end, everybody forgets it, its machine is left clean."""

from pyinfra.context import host

from inventory.loading import load_cluster
from roles import base, firewall, logs, monitoring, nightly, slurm
from roles.facts.site import LEAVING, fast_connection
from roles.facts.slurm import CERTIFICATES
from roles.operations.barrier import barrier
from roles.operations.leave import WAIT_MINUTES, drain_and_wait, forget, give_back
from roles.operations.summary import summarise_at_end

fast_connection()
summarise_at_end(__file__)
leaving = str(host.data.get(LEAVING))
controller = load_cluster(host.data.inventory_file).controller.name
if host.name == controller:
    drain_and_wait(
        name=f"Drain {leaving} and wait for its jobs",
        nodes=(leaving,),
        minutes=float(host.data.get("wait_minutes", WAIT_MINUTES)),
    )
barrier(name=f"{leaving} is idle")
if host.name == leaving:
    give_back(name=f"Leave the machine of {leaving} as it was found")
barrier(name=f"{leaving} is clean")
if host.name != leaving:
    base.deploy()
    firewall.deploy()
    slurm.deploy()
    monitoring.deploy()
    nightly.deploy()
    logs.deploy()
if host.name == controller:
    forget(name=f"Forget {leaving}", node=leaving, certificates=CERTIFICATES)
