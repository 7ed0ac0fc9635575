"""Build the training image from Debian's packages, once a recipe, and push it to the cluster's registry."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Generator, Sequence

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.operations.configure import sh
from roles.operations.packages import APT

CPU_PACKAGES = ("python3-torch", "python3-numpy", "python3-minimal", "ca-certificates", "procps")
TOOLS = ("mmdebstrap", "buildah", "skopeo")
AUTH = "/etc/klaster/registry/push.json"


def recipe_tag(packages: Sequence[str], suite: str) -> str:
    """A tag that changes with what goes in."""
    return hashlib.sha256("\n".join([suite, *packages]).encode()).hexdigest()[:12]


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


def build_commands(image: str, tag: str, packages: Sequence[str], suite: str) -> list[str]:
    """Base system and packages into a folder from the node's own sources, that folder into an image, pushed."""
    whole = shlex.quote(f"{image}:{tag}")
    # The node's own sources, in both formats: no mirror's address is known here.
    sources = "$(ls /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null)"
    build = (
        "set -e; work=$(mktemp -d /var/tmp/klaster-image.XXXXXX); trap 'rm -rf \"$work\"' EXIT; "
        f'mmdebstrap -q --variant=minbase --include={",".join(packages)} {shlex.quote(suite)} "$work/root.tar" '
        f"{sources}; "
        'c=$(buildah from scratch); buildah add -q "$c" "$work/root.tar" /; '
        "buildah config --cmd python3 --env PYTHONUNBUFFERED=1 --env USE_LIBUV=0 --label klaster.recipe="
        f'{tag} "$c"; buildah commit -q --rm "$c" {whole}; '
        f"buildah push -q --authfile {AUTH} {whole}; buildah rmi -f {whole} >/dev/null"
    )
    return [f"{APT} --no-install-recommends install {shlex.join(TOOLS)}", build]


@operation()
def training_image(registry: str, suite: str) -> Generator[StringCommand, None, None]:
    """The CPU image of this recipe is in the registry."""
    image, tag = f"{registry}/train-cpu", recipe_tag(CPU_PACKAGES, suite)
    if tag in host.get_fact(Tags, image=image):
        host.noop(f"{image}:{tag} is in the registry")
        return
    for command in build_commands(image, tag, CPU_PACKAGES, suite):
        yield sh(command)
