"""Build the training image on the registry's node and push it, tagged by its recipe; promotion is a person's."""

from pyinfra.context import host

from inventory.containers import registry_node
from roles import registry
from roles.facts import site
from roles.facts.site import fast_connection
from roles.operations.images import training_image

fast_connection()
if site.cluster().registry is not None and host.name == registry_node(site.cluster()):
    training_image(
        name="Build and push the CPU training image", registry=registry.address(site.cluster()), suite="trixie"
    )
