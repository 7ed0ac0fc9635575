"""pyinfra runs this file before it reads the inventory: a wrong inventory stops here, with one line."""

import click

from inventory.guard import check_run

check_run(click.get_current_context().params)
