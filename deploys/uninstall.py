"""Give machines back as they were found, all or those of --limit; home directories and backups stay."""

from roles.facts import site
from roles.facts.site import fast_connection
from roles.operations.leave import give_back
from roles.operations.summary import summarise_at_end

fast_connection()
summarise_at_end(__file__)
backup = site.cluster().backups
give_back(name="Give the machine back as it was found", keep=(backup.folder,) if backup else ())
