"""The verbs of bin/lab."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from inventory.loading import load_cluster
from lab import faults, holder, lifecycle, network, simulated_gpu
from lab.apt import MIRROR_VARIABLE
from lab.errors import LabError
from lab.image import SUITES
from lab.node import is_running, stop_node
from lab.plan import NAME_VARIABLE, Plan, make_plan
from lab.ssh import ssh_command
from lab.uml_image import HOST_PACKAGES

DEFAULT_INVENTORY = "inventory/lab.py"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"bin/lab: {message}; see bin/lab --help\n")


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="bin/lab", description="The rehearsal lab: throwaway nodes on this machine, in containers.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    up = verbs.add_parser("up", help="start what is missing of the lab")
    up.add_argument("inventory", nargs="?", default=DEFAULT_INVENTORY, help="default: %(default)s")
    up.add_argument("--suite", choices=SUITES, help="Debian release of new nodes; default: the lab's own")
    verbs.add_parser("down", help="take everything away; only the caches of image and packages stay")
    verbs.add_parser("status", help="who holds the lab, its nodes, their links")
    ssh = verbs.add_parser("ssh", help="run a command in a node, or a shell")
    ssh.add_argument("node", help="its name in the inventory")
    ssh.add_argument("command", nargs=argparse.REMAINDER)
    kill = verbs.add_parser("kill", help="end a node at once, as a power cut would; `up` starts it again")
    kill.add_argument("node", help="its name in the inventory")
    reboot = verbs.add_parser("reboot", help="restart a node's system and wait until it is back")
    reboot.add_argument("node", help="its name in the inventory")
    shape = verbs.add_parser("shape", help="limit a node's links to MBIT Mb/s, both ways")
    shape.add_argument("node", help="its name in the inventory")
    shape.add_argument("mbit", type=_positive, help="Mb/s; 50 is slow, 1000 a usual cable")
    shape.add_argument("--egress-only", action="store_true", help="only what the node sends")
    cut = verbs.add_parser("cut", help="let nothing pass between two nodes")
    cut.add_argument("a")
    cut.add_argument("b")
    gpu = verbs.add_parser("gpu", help="give a node simulated NVIDIA cards, played from a recording")
    gpu.add_argument("node", help="its name in the inventory")
    gpu.add_argument("recording", help="a name, a folder, or none to take the cards out")
    fault = verbs.add_parser("fault", help="put a fault into nodes; without a name: all there are")
    fault.add_argument("name", nargs="?")
    fault.add_argument("nodes", nargs="*", metavar="node")
    packages = verbs.add_parser("packages", help="Debian packages that this machine needs for an inventory's lab")
    packages.add_argument("inventory", nargs="?", default=DEFAULT_INVENTORY, help="default: %(default)s")
    verbs.add_parser("heal", help="undo every fault, shape and cut")
    outside = verbs.add_parser("outside", help="run a command at an address outside the cluster's networks")
    outside.add_argument("command", nargs=argparse.REMAINDER)
    return parser


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0.1 <= value <= 1e6:
        raise argparse.ArgumentTypeError(f'"{text}" is not a speed in Mb/s from 0.1 to 1000000')
    return value


def main(argv: Sequence[str]) -> int:
    """Run one verb; a mistake or a failure is one line on stderr and status 1 (2 for a wrong command line)."""
    arguments = build_parser().parse_args(argv)
    if os.geteuid() != 0:
        _become_root(argv)
    try:
        return VERBS[arguments.verb](arguments)
    except LabError as error:
        print(f"bin/lab: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read us, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("bin/lab: interrupted; run it again to go on, or `bin/lab down`", file=sys.stderr)
        return 130


def _become_root(argv: Sequence[str]) -> NoReturn:
    keep = f"--preserve-env={MIRROR_VARIABLE},{NAME_VARIABLE}"
    os.execvp("sudo", ["sudo", keep, sys.executable, "-m", "lab", *argv])  # noqa: S606 - the point of it


def say(text: str) -> None:
    print(text, flush=True)


def _up(arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    plan = lifecycle.up(arguments.inventory, say, arguments.suite)
    nodes = ", ".join(f"{node.name} {node.address}" for node in plan.nodes)
    say(f"lab up in {time.monotonic() - started:.1f} s: {nodes}")
    return 0


def _down(arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    was_up = lifecycle.down(say)
    say(f"lab down in {time.monotonic() - started:.1f} s" if was_up else "the lab is down already")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    held = holder.read_holder()
    if held is None:
        say("the lab is down")
        return 1
    plan = make_plan(held.load_cluster())
    say(f"held by {held.checkout} since {held.since}, inventory {held.inventory_file}")
    for node in plan.nodes:
        running = is_running(Path(plan.state_dir), node.name)
        say(f"{node.name:<12} {node.address:<15} {'running' if running else 'stopped':<8} {_speeds(plan, node.name)}")
    for a, b in network.cuts(plan):
        say(f"cut: {a} and {b}")
    for text in faults.present(plan):
        say(f"fault: {text}")
    return 0


def _speeds(plan: Plan, name: str) -> str:
    node = plan.node(name)
    texts = []
    for port, (send, receive) in zip(node.ports, network.speeds_mbit(plan, node), strict=True):
        changed = "" if send == receive == port.speed_mbit else f" (declared {port.speed_mbit:g})"
        texts.append(f"{port.inner}: sends {send:g}, receives {receive:g} Mb/s{changed}")
    return "; ".join(texts)


def _plan() -> Plan:
    return make_plan(holder.needed_holder().load_cluster())


def _ssh(arguments: argparse.Namespace) -> int:
    plan = _plan()
    argv = ssh_command(plan, plan.node(arguments.node), arguments.command)
    os.execvp(argv[0], argv)  # noqa: S606 - ssh takes over our terminal


def _kill(arguments: argparse.Namespace) -> int:
    with holder.locked():
        plan = _plan()
        stop_node(plan, plan.node(arguments.node))
    say(f"{arguments.node} is off; `bin/lab up` boots it again")
    return 0


def _reboot(arguments: argparse.Namespace) -> int:
    with holder.locked():
        plan = _plan()
        lifecycle.reboot(plan, plan.node(arguments.node))
    return 0


def _packages(arguments: argparse.Namespace) -> int:
    """For bin/lab: what this machine needs for the lab of an inventory, a line each."""
    if load_cluster(arguments.inventory).lab == "uml":
        say("\n".join(HOST_PACKAGES))
    return 0


def _shape(arguments: argparse.Namespace) -> int:
    with holder.locked():
        plan = _plan()
        network.shape(plan, plan.node(arguments.node), arguments.mbit, egress_only=arguments.egress_only)
        say(f"{arguments.node}: {_speeds(plan, arguments.node)}")
    return 0


def _cut(arguments: argparse.Namespace) -> int:
    with holder.locked():
        plan = _plan()
        if arguments.a == arguments.b:
            raise LabError(f"a cut needs two nodes, not {arguments.a} twice")
        network.cut(plan, plan.node(arguments.a), plan.node(arguments.b))
    say(f"nothing passes between {arguments.a} and {arguments.b} until `bin/lab heal`")
    return 0


def _gpu(arguments: argparse.Namespace) -> int:
    with holder.locked():
        plan = _plan()
        simulated_gpu.put_in(plan, plan.node(arguments.node), arguments.recording)
    said = "has no simulated cards" if arguments.recording == "none" else f"simulates {arguments.recording}"
    say(f"{arguments.node} {said}")
    return 0


def _fault(arguments: argparse.Namespace) -> int:
    if arguments.name is None:
        say(faults.render_list())
        return 0
    with holder.locked():
        faults.put_in(_plan(), arguments.name, arguments.nodes)
    say(f"{arguments.name} is in {', '.join(arguments.nodes)} until `bin/lab heal`")
    return 0


def _heal(arguments: argparse.Namespace) -> int:
    with holder.locked():
        plan = _plan()
        try:
            healed = faults.heal(plan)
        finally:
            network.heal(plan)
    for text in healed:
        say(f"healed: {text}")
    say("every link is whole and has its declared speed")
    return 0


def _outside(arguments: argparse.Namespace) -> int:
    plan = _plan()
    if not arguments.command:
        raise LabError(f"outside needs a command; it runs at {plan.outside}")
    argv = network.in_netns(plan.instance.outside, *arguments.command)
    os.execvp(argv[0], argv)  # noqa: S606 - the command takes over


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "up": _up,
    "down": _down,
    "status": _status,
    "ssh": _ssh,
    "kill": _kill,
    "reboot": _reboot,
    "packages": _packages,
    "shape": _shape,
    "cut": _cut,
    "gpu": _gpu,
    "fault": _fault,
    "heal": _heal,
    "outside": _outside,
}
