"""Build the training images, once a recipe, and push them to the cluster's registry."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Generator
from dataclasses import dataclass

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.operation import operation
from pyinfra.context import host

from inventory.model import TrainingEnv
from roles.operations.configure import sh
from roles.operations.packages import APT

CPU_PACKAGES = ("python3-torch", "python3-numpy", "python3-minimal", "ca-certificates", "procps")
CUDA_PACKAGES = ("python3-minimal", "python3-venv", "ca-certificates", "procps")
LOCK = "/etc/klaster/images/torch.lock"
TOOLS = ("mmdebstrap", "buildah", "skopeo")
VENV = "/opt/torch"
"""In the image for cards."""
AUTH = "/etc/klaster/registry/push.json"


class Tags(FactBase[tuple[str, ...]]):
    """Tags of an image in the registry; none where it is not there."""

    def command(self, image: str) -> str:
        words = f"timeout 20 skopeo list-tags --authfile {AUTH} docker://{shlex.quote(image)} 2>/dev/null"
        return f"{words} | tr -d ' \",' | grep -E '^[a-z0-9.-]+$'; true"

    def process(self, output: list[str]) -> tuple[str, ...]:
        return tuple(output)

    @staticmethod
    def default() -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class Recipe:
    """One image: Debian's packages, and torch of a lock file where Debian has no build for the cards."""

    name: str
    packages: tuple[str, ...]
    suite: str
    lock_text: str = ""
    index_url: str = ""

    @property
    def tag(self) -> str:
        """Changes with what goes in."""
        parts = [self.suite, *self.packages, *([self.lock_text, self.index_url] if self.lock_text else [])]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def recipes(training: TrainingEnv, lock_text: str, suite: str, *, cards: bool) -> list[Recipe]:
    """train-cpu from Debian alone; train-cuda for a cluster with cards, with the torch that its nodes have."""
    found = [Recipe("train-cpu", CPU_PACKAGES, suite)]
    if cards and lock_text:
        found.append(Recipe("train-cuda", CUDA_PACKAGES, suite, lock_text, training.index_url or ""))
    return found


def build_command(recipe: Recipe, registry: str) -> str:
    """Base system and packages into a folder from the node's own sources, that folder into an image, pushed."""
    whole = shlex.quote(f"{registry}/{recipe.name}:{recipe.tag}")
    # The node's own sources, in both formats: no mirror's address is known here.
    sources = "$(ls /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null)"
    python, torch = "python3", ""
    if recipe.lock_text:
        index = f" --index-url {shlex.quote(recipe.index_url)}" if recipe.index_url else ""
        python = f"{VENV}/bin/python3"
        pip = f"{VENV}/bin/pip install -q --no-cache-dir --require-hashes{index} -r /torch.lock"
        torch = (
            f'buildah copy -q "$c" {LOCK} /torch.lock; buildah run --network host "$c" -- python3 -m venv {VENV}; '
            f'buildah run --network host "$c" -- {pip}; '
        )
    return (
        "set -e; work=$(mktemp -d /var/tmp/klaster-image.XXXXXX); trap 'rm -rf \"$work\"' EXIT; "
        f"mmdebstrap -q --variant=minbase --include={','.join(recipe.packages)} {shlex.quote(recipe.suite)} "
        f'"$work/root.tar" {sources}; '
        f'c=$(buildah from scratch); buildah add -q "$c" "$work/root.tar" /; {torch}'
        f"buildah config --cmd {python} --env PYTHONUNBUFFERED=1 --env USE_LIBUV=0 --label klaster.recipe="
        f'{recipe.tag} "$c"; buildah commit -q --rm "$c" {whole}; '
        f"buildah push -q --authfile {AUTH} {whole}; buildah rmi -f {whole} >/dev/null"
    )


@operation()
def training_image(recipe: Recipe, registry: str) -> Generator[StringCommand, None, None]:
    """The image of this recipe is in the registry."""
    image = f"{registry}/{recipe.name}"
    if recipe.tag in host.get_fact(Tags, image=image):
        host.noop(f"{image}:{recipe.tag} is in the registry")
        return
    yield sh(f"{APT} --no-install-recommends install {shlex.join(TOOLS)}")
    if recipe.lock_text:
        lock = sh(f"mkdir -p $(dirname {LOCK}) && cat > {LOCK}")
        lock.connector_arguments["_stdin"] = recipe.lock_text
        yield lock
    yield sh(build_command(recipe, registry))
