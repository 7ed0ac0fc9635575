"""Print each node's GPU stack in one table: wanted against installed, loaded and held, and reboots that are due."""

import click
from pyinfra.context import host

from roles import gpu
from roles.facts import site
from roles.facts.gpu import GpuFacts
from roles.facts.site import fast_connection

fast_connection()
hosts = list(host.state.inventory.get_active_hosts())
if host.name == hosts[-1].name:  # once, with everybody connected
    states = {other.name: other.get_fact(GpuFacts) for other in hosts}
    click.echo(gpu.versions_table(site.cluster(), states))
