"""Build the training images on the registry's node and push them, tagged by their recipes; promotion is a person's."""

from pyinfra.context import host

from inventory.containers import registry_node
from roles import registry, training
from roles.facts import site
from roles.facts.site import fast_connection
from roles.operations.images import recipes, training_image

fast_connection()
cluster = site.cluster()
if cluster.registry is not None and host.name == registry_node(cluster):
    cards = any(node.gpus for node in cluster.nodes)
    for recipe in recipes(cluster.training, training.lock_text(cluster), "trixie", cards=cards):
        training_image(name=f"Build and push {recipe.name}", recipe=recipe, registry=registry.address(cluster))
