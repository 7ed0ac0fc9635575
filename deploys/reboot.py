"""Reboot, one after another, the nodes that need it and on which nobody computes; the others are named."""

from roles.facts.site import fast_connection
from roles.operations.reboot import reboot_if_due

fast_connection()
reboot_if_due(name="Reboot where it is due and nobody computes", _serial=True)
