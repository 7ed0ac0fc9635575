"""Read each node's hardware again and compare it with the lock; `--data accept=NODE` (or all) takes a change over."""

from roles import hardware
from roles.facts.site import fast_connection

fast_connection()
hardware.deploy(again=True)
