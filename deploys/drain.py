"""Let nodes take no more jobs and wait until they have none: `--data drain=n1,n2 [--data wait_minutes=60]`."""

from pyinfra.context import host

from roles.facts import site
from roles.facts.site import fast_connection
from roles.operations.leave import UPGRADE, WAIT_MINUTES, drain_and_wait

fast_connection()
if host.name == site.cluster().controller.name:
    drain_and_wait(
        name=f"Drain {host.data.get('drain')} and wait for the jobs",
        nodes=tuple(str(host.data.get("drain")).split(",")),
        reason=UPGRADE,
        minutes=float(host.data.get("wait_minutes", WAIT_MINUTES)),
    )
