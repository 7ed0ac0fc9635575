"""Replace the key that munge shares between all nodes; refused while any job runs: it would be cut off."""

from roles import munge
from roles.facts.site import fast_connection
from roles.operations.barrier import barrier
from roles.operations.summary import summarise_at_end

fast_connection()
summarise_at_end(__file__)
munge.refuse_while_jobs_run(name="Make sure that no job runs")
barrier(name="No job runs")
munge.renew_key(name="Make a new key", _run_once=True)
barrier(name="The new key is made")
munge.deploy()
