"""The GPU stack of a cluster: one set of versions, installed, held and changed together, and what can't fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from inventory.cards import FIRST_DRIVER_FOR_CUDA, Generation, cuda_version, generation, generation_named
from inventory.errors import Mismatch
from inventory.spec import Spec
from inventory.words import IndexUrl, OwnFile, Switch

if TYPE_CHECKING:
    from inventory.model import Cluster, Gpu, Node, TrainingEnv

SetName = Literal["debian-550", "debian-535", "nvidia-580", "ubuntu-580"]
Flavour = Literal["open", "proprietary"]


@dataclass(frozen=True)
class VersionSet:
    """Versions that belong together; what is not in the source of the packages is an empty text."""

    name: SetName
    source: Literal["debian", "nvidia", "ubuntu"]
    distributions: tuple[tuple[str, str], ...]
    """os-release's ID and VERSION_ID of the machines it is for."""
    driver: int
    """Branch: 550 stands for every 550.x.y."""
    cuda: str
    """The newest CUDA that the driver runs without a compatibility package."""
    toolkit: str
    """CUDA toolkit of the same source."""
    nccl: str
    container_toolkit: str
    dcgm: str
    tried: str
    """What has been seen to work, in words."""


# Debian's versions: its archive. NVIDIA's and Ubuntu's: their documentation; facts in, commands out, never run.
VERSION_SETS: tuple[VersionSet, ...] = (
    VersionSet(
        "debian-550", "debian", (("debian", "13"),), 550, "12.4", "12.4", "2.22.3", "", "",
        "proprietary module built and installed in lab nodes; no card",
    ),
    VersionSet(
        "debian-535", "debian", (("debian", "12"),), 535, "12.2", "11.8", "", "", "",
        "open module's misfit found in a lab node; proprietary one not built by a deploy yet",
    ),
    VersionSet(
        "nvidia-580", "nvidia", (("debian", "12"), ("debian", "13"), ("ubuntu", "24.04")), 580, "13.0", "13.0",
        "2.28.3", "1.17.8-1", "4", "not run",
    ),
    VersionSet("ubuntu-580", "ubuntu", (("ubuntu", "24.04"),), 580, "13.0", "", "", "", "", "not run"),
)  # fmt: skip
_SETS = {one.name: one for one in VERSION_SETS}


class GpuStack(Spec):
    """Driver, CUDA, NCCL and container toolkit of the nodes with NVIDIA cards: one set, held together."""

    versions: SetName = Field(
        description="debian-550: Debian 13's own. debian-535: Debian 12's own. nvidia-580: NVIDIA's repository. "
        "ubuntu-580: Ubuntu's server drivers."
    )
    flavour: Literal["auto", "open", "proprietary"] = Field(
        default="auto",
        description="Kernel module. auto: open where every card of the node allows it, the other if it does not build.",
    )
    cuda_toolkit: Switch = Field(default=False, description="Install the compiler too; training needs only the driver.")
    dcgm: Switch = Field(default=False, description="Install DCGM, where the set has it and no card is a consumer's.")
    repository_url: IndexUrl | None = Field(
        default=None, description="NVIDIA's repository for the nodes' distribution; for the set nvidia-580."
    )
    repository_key: OwnFile | None = Field(default=None, description="Its public key, a file of yours (.asc or .gpg).")
    nvswitch: Switch = Field(default=False, description="Nodes have NVSwitch: install and run the fabric manager.")

    @property
    def set(self) -> VersionSet:
        return _SETS[self.versions]


def generation_of(gpu: Gpu) -> Generation | None:
    return generation_named(gpu.generation) if gpu.generation else generation(gpu.model)


def flavours(node: Node) -> tuple[Flavour, ...]:
    """The kernel modules that support every card of a node, the preferred one first; cards must be known."""
    found = [known for gpu in node.gpus if (known := generation_of(gpu))]
    both: tuple[tuple[Flavour, bool], ...] = (
        ("open", all(one.open_modules for one in found)),
        ("proprietary", all(one.proprietary_modules for one in found)),
    )
    return tuple(name for name, supported in both if supported)


def wanted_flavours(stack: GpuStack, node: Node) -> tuple[Flavour, ...]:
    """What may be installed on a node, in this order: an inventory that names one gets no other."""
    possible = flavours(node)
    return possible if stack.flavour == "auto" else tuple(one for one in possible if one == stack.flavour)


# --- what can't fit ----------------------------------------------------------------------------------------------


def check_gpu_stack(cluster: Cluster) -> None:
    """Mismatch at the first card, driver and CUDA that can't work together."""
    stack = cluster.gpu_stack
    with_cards = [node for node in cluster.nodes if node.gpus]
    for node in with_cards:
        for gpu in node.gpus:
            _check_torch(cluster, node, gpu)
            if stack is not None:
                _check_card(stack, node, gpu)
            elif gpu.power_cap_watts or gpu.no_p2p_because:
                text = f'node "{node.name}": power_cap_watts and no_p2p_because are set by the GPU stack'
                raise Mismatch(f"{text}; declare Cluster(gpu_stack=GpuStack(…)), or leave them out", gpu.place)
    if stack is None:
        return
    for node in with_cards:
        _check_flavour(stack, node)
    _check_source(stack)
    training = cluster.training
    if with_cards and training.lock_file and training.cuda is None:
        raise Mismatch(
            f'TrainingEnv: say which CUDA the torch of lock_file brings, e.g. cuda="{stack.set.cuda}"; '
            f"driver {stack.set.driver} must be able to run it",
            training.place,
        )
    if with_cards and training.cuda:
        _check_driver_runs(stack.set.driver, training)


def _check_torch(cluster: Cluster, node: Node, gpu: Gpu) -> None:
    """A build of torch for a CUDA that does not know the card, or no longer, fails at its first kernel."""
    known, text = generation_of(gpu), cluster.training.cuda
    if known is None or text is None:
        return
    first, last = known.first_cuda, known.last_cuda
    if cuda_version(text) < first:
        needed = f"at least {_dotted(first)}"
    elif last and cuda_version(text)[0] > last[0]:
        needed = f"at most {_dotted(last)}"
    else:
        return
    raise Mismatch(
        f'node "{node.name}": {gpu.model} ({known.name}) does not work with a torch for CUDA {text}; '
        f"it needs {needed}: take another build of torch and say its TrainingEnv(cuda=…)",
        gpu.place,
    )


def _check_card(stack: GpuStack, node: Node, gpu: Gpu) -> None:
    known, driver = generation_of(gpu), stack.set.driver
    if known is None:
        raise Mismatch(
            f'node "{node.name}": the card "{gpu.model}" is not known, so no driver can be chosen for it: write its '
            'name as nvidia-smi has it, or say its generation, e.g. Gpu(generation="ampere", …)',
            gpu.place,
        )
    if driver < known.first_driver:
        needed = f"driver {known.first_driver} or newer"
    elif known.last_driver and driver > known.last_driver:
        needed = f"driver {known.last_driver} or older"
    else:
        return
    fitting = [one.name for one in VERSION_SETS if _supports(one.driver, known)]
    raise Mismatch(
        f'node "{node.name}": {gpu.model} ({known.name}) needs {needed}, and versions="{stack.versions}" brings '
        f"{driver}; sets that know this card: {', '.join(fitting) or 'none'}",
        gpu.place,
    )


def _supports(driver: int, known: Generation) -> bool:
    return known.first_driver <= driver <= (known.last_driver or driver)


def _check_flavour(stack: GpuStack, node: Node) -> None:
    cards = ", ".join(f"{gpu.model} ({known.name})" for gpu in node.gpus if (known := generation_of(gpu)))
    if not flavours(node):
        raise Mismatch(
            f'node "{node.name}": {cards}: one needs the open kernel module and another the proprietary one; '
            "put them into different machines",
            node.place,
        )
    if not wanted_flavours(stack, node):
        raise Mismatch(
            f'node "{node.name}": the {stack.flavour} kernel module does not support {cards}; '
            f'write flavour="{flavours(node)[0]}" or "auto"',
            stack.place,
        )


def _check_source(stack: GpuStack) -> None:
    one = stack.set
    if one.source == "nvidia" and not (stack.repository_url and stack.repository_key):
        raise Mismatch(
            f'GpuStack: versions="{one.name}" comes from NVIDIA\'s repository: say repository_url and repository_key '
            "(its installation guide has both for your distribution)",
            stack.place,
        )
    if one.source != "nvidia" and (stack.repository_url or stack.repository_key):
        raise Mismatch(f'GpuStack: versions="{one.name}" does not use a repository_url; leave it out', stack.place)
    for wanted, has, what in (
        (stack.dcgm, one.dcgm, "DCGM"),
        (stack.cuda_toolkit, one.toolkit, "a CUDA toolkit"),
        (stack.nvswitch, one.source != "debian", "the fabric manager"),
    ):
        if wanted and not has:
            raise Mismatch(f'GpuStack: versions="{one.name}" has no {what}; take a set that has it', stack.place)


def _check_driver_runs(driver: int, training: TrainingEnv) -> None:
    major = cuda_version(training.cuda or "0.0")[0]
    needed = FIRST_DRIVER_FOR_CUDA.get(major)
    if needed is None:
        raise Mismatch(
            f'TrainingEnv: CUDA "{training.cuda}" is not known here; known are 11, 12 and 13', training.place
        )
    if driver < needed:
        raise Mismatch(
            f"TrainingEnv: a torch for CUDA {training.cuda} needs driver {needed} or newer, and the GPU stack brings "
            f"{driver}; take a build of torch for CUDA {_newest_cuda(driver)}, or another set of versions",
            training.place,
        )


def _newest_cuda(driver: int) -> str:
    return f"{max(major for major, first in FIRST_DRIVER_FOR_CUDA.items() if first <= driver)}.x"


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
