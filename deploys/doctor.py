"""Look before you deploy: what would stop a first run, or has broken a living node, with remedies; changes nothing."""

import datetime

import click
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.facts import get_facts
from pyinfra.context import host

from inventory.model import External
from roles.facts import site
from roles.facts.doctor import ClockOffset, Doctor
from roles.facts.site import fast_connection
from roles.operations.doctor import examine, page

fast_connection()
state = host.state
hosts = list(state.inventory.get_active_hosts())
if host.name == hosts[-1].name:  # once, with everybody connected
    cluster = site.cluster()
    asked = {
        "peers": tuple(f"{node.name} {node.address} {cluster.ssh.port}" for node in cluster.nodes),
        "mounts": tuple(storage.path for storage in cluster.storage if isinstance(storage, External)),
        "_sudo": False,  # whether it may is one of the questions
    }
    offsets = get_facts(  # type: ignore[no-untyped-call]
        state, ClockOffset, kwargs={"_sudo": False}, apply_failed_hosts=False
    )
    probes = get_facts(  # type: ignore[no-untyped-call]
        state, Doctor, kwargs=asked, apply_failed_hosts=False
    )
    unreached = [other.name for other in state.inventory if state.is_host_in_limit(other) and other not in hosts]
    findings = examine(
        cluster,
        {other.name: probe for other, probe in probes.items() if probe is not None},
        unreached,
        {other.name: offset for other, offset in offsets.items()},
        datetime.datetime.now(datetime.UTC).year,
    )
    click.echo(page(findings, [other.name for other in hosts]))
    if any(finding.weight == "stops" for finding in findings):
        raise PyinfraError("a deploy would be stopped by what the table calls so")
