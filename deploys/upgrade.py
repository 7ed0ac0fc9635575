"""Bring the distribution's packages of drained and idle nodes up to date; what apt holds (the GPU set) stays."""

from roles.facts.site import fast_connection
from roles.operations.upgrade import upgrade_packages

fast_connection()
upgrade_packages(name="Upgrade the distribution's packages")
