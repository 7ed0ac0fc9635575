"""A deploy for test_registry.py: what the registry and containers need, without Slurm."""

from roles import base, containers, hardware, registry, secrets
from roles.facts.site import fast_connection
from roles.operations.barrier import barrier

fast_connection()
hardware.deploy()
base.deploy()
secrets.deploy()
registry.deploy()
barrier(name="The registry runs")
containers.deploy()
