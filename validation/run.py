"""One run from the inventory to the exit status: connect, lock, stages, verdict, quarantine; nothing is left behind."""

from __future__ import annotations

import secrets
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import TYPE_CHECKING

from inventory.hardware import HardwareLock
from inventory.loading import hardware_lock_path, load_cluster
from validation.cli import EXIT_INTERRUPTED
from validation.golden import add_golden
from validation.history import collect
from validation.link_watch import changed, read_counts
from validation.model import Judgement
from validation.node_journal import collect_journals
from validation.outcome import EXIT_UNDECIDED, Finished, finish, show
from validation.progress import Progress
from validation.publish import publish
from validation.quarantine import apply_actions, plan_actions
from validation.remote import Remote, RemoteError, connect_all
from validation.run_folder import RunFolder, RunFolderError
from validation.run_lock import ClusterLocked, run_lock
from validation.run_options import RunOptions, UsageError
from validation.run_stages import Run, run_record, run_stages, skip_the_rest, states_of
from validation.slurm_state import busy_nodes, choose_launcher, read_states, settled_states

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

BUSY_POLL_S = 5.0


class Refused(Exception):
    """The cluster can't be judged now (another run, running jobs); the text says why and what to do."""


def validate(options: RunOptions) -> int:
    """Certify the cluster of an inventory; the exit status. UsageError for what can't be asked."""
    cluster = load_cluster(options.inventory)
    lock = HardwareLock.load(hardware_lock_path(options.inventory))
    started = datetime.now(UTC)
    try:
        folder = RunFolder.create(options.out, cluster.name, started)
    except RunFolderError as error:
        raise UsageError(str(error)) from None
    run_id = f"{started.strftime('%Y%m%dT%H%M%SZ')}-{secrets.token_hex(2)}"
    with Progress() as progress, patient_signals(), ExitStack() as stack:
        run = Run(options, cluster, lock, folder, progress, run_id)
        try:
            return _validate(run, started, stack)
        except Refused as refusal:
            folder.discard()
            print(f"validate-cluster: {refusal}", file=sys.stderr)
            return EXIT_UNDECIDED
        except RunFolderError as error:
            print(f"validate-cluster: {error}; the nodes are as they were", file=sys.stderr)
            return EXIT_UNDECIDED
        except KeyboardInterrupt:  # before anything was measured
            folder.discard()
            print("validate-cluster: interrupted before anything was measured", file=sys.stderr)
            return EXIT_INTERRUPTED


def _validate(run: Run, started: datetime, stack: ExitStack) -> int:
    _connect(run, stack)
    _wait_until_idle(run)
    try:
        chosen = choose_launcher(run.options.launcher, run.states, [node.name for node in run.ranks])
    except ValueError as error:
        run.folder.discard()
        raise UsageError(str(error)) from None
    run.launcher = "slurm" if chosen == "slurm" else "ssh"
    record = run_record(run, started.strftime("%Y-%m-%dT%H:%M:%SZ"), _version())
    baselines = collect(run.folder, record, fresh=run.options.new_baseline)
    run.emit(record.model_copy(update={"baselines": {**record.baselines, **baselines}}))
    links = read_counts(run.cluster, run.remotes)
    try:
        run_stages(run)
        for flapped in changed(links, read_counts(run.cluster, run.remotes)):
            run.emit(flapped)
    except KeyboardInterrupt:
        run.interrupted = True
        skip_the_rest(run, "interrupted")
        run.progress.step("run", "interrupted: nothing is left on the nodes; judging what was measured")
    collect_journals(run.folder.logs, run.folder.records(), run.remotes, run.began, run.emit)
    finished = finish(run.folder, _signing_key(run))
    run.folder.point_latest()
    add_golden(run.folder, run.records, finished.judgement)
    told = [] if run.interrupted else _quarantine(run, finished)
    if not (run.interrupted or run.options.partial):
        told += _published(run)
    show(finished, run.folder, as_json=run.options.json, slurm=told)
    return EXIT_INTERRUPTED if run.interrupted else finished.status


def _connect(run: Run, stack: ExitStack) -> None:
    """Reach the nodes, and take the cluster for this run."""
    head = run.cluster.controller
    wanted = [node for node in run.cluster.nodes if node in run.nodes or node is head]
    run.progress.step("run", f"connecting to {', '.join(node.name for node in wanted[:8])}{' …' * (len(wanted) > 8)}")
    run.remotes, reasons = connect_all(run.cluster, wanted)
    for remote in run.remotes.values():
        stack.callback(remote.close)
    run.unreachable = {name: why for name, why in reasons.items() if name in {node.name for node in run.nodes}}
    for why in reasons.values():
        run.progress.step("run", f"not reached: {why}")
    controller = run.remotes.get(head.name)
    if controller is not None:
        _take_cluster(run, controller, stack)


def _take_cluster(run: Run, controller: Remote, stack: ExitStack) -> None:
    """Take the run lock, waiting for its holder as long as was allowed; Refused when the time is over."""
    while True:
        try:
            stack.enter_context(run_lock(controller, run.run_id))
        except ClusterLocked as error:
            if _waited_out(run):
                raise Refused(f"{error}; wait for it with --wait MINUTES") from None
            run.progress.step("run", str(error))
            time.sleep(BUSY_POLL_S)
        except RemoteError as error:
            raise Refused(f"{error}; without the lock two runs would disturb each other") from None
        else:
            return


def _waited_out(run: Run) -> bool:
    return time.monotonic() - run.began >= run.options.wait_minutes * 60


def _wait_until_idle(run: Run) -> None:
    """Read Slurm's states until no node of the run has a job; Refused when the time is over."""
    while True:
        names = [node.name for node in run.nodes]
        run.states = settled_states(run.remotes.get(run.cluster.controller.name), names)
        busy = busy_nodes(run.states, names)
        if not busy:
            run.progress.step("run", states_of(run.states, run.nodes))
            return
        if _waited_out(run):
            raise Refused(f"jobs run on {', '.join(busy)}: wait for them with --wait MINUTES, or drain these nodes")
        run.progress.step("run", f"waiting for jobs on {', '.join(busy)}")
        time.sleep(BUSY_POLL_S)


def _quarantine(run: Run, finished: Finished) -> list[str]:
    """Drain and resume as the verdict says; what is then true, a line a node."""
    judgement: Judgement = finished.judgement
    controller = run.remotes.get(run.cluster.controller.name)
    if controller is None:
        return ["the controller was not reached: no node was drained or resumed"]
    run.progress.step("run", "telling Slurm")
    states = read_states(controller)
    if states is None:
        return ["Slurm does not answer: no node was drained or resumed"]
    actions = plan_actions(
        judgement,
        states,
        run.run_id,
        nodes=[node.name for node in run.nodes if "compute" in node.roles],
        all_stages=run.options.all_stages,
        drain_share=run.cluster.slurm.drain_share,
    )
    told = apply_actions(actions, controller, run.remotes, finished.node_certificates)
    try:
        run.folder.write(run.folder.logs / "slurm.txt", "\n".join(told) + "\n")
    except RunFolderError as error:  # Slurm has been told: the reader must see what
        told.append(str(error))
    return told


def _signing_key(run: Run) -> Ed25519PrivateKey | None:
    """The cluster's key, or None with a line about why the certificates will not be signed."""
    from validation.signing import NoKey, signing_key

    try:
        return signing_key(run.options.inventory)
    except NoKey as error:
        run.progress.step("run", f"the certificates are not signed: {error}")
        return None


def _published(run: Run) -> list[str]:
    """A whole run's metrics go to the controller; a sentence if they could not."""
    controller = run.remotes.get(run.cluster.controller.name)
    trouble = publish(run.folder, controller) if controller else ""
    return [trouble] if trouble else []


def _version() -> str:
    try:
        return version("klaster")
    except PackageNotFoundError:  # a plain checkout
        return "0"


@contextmanager
def patient_signals() -> Iterator[None]:
    """The first SIGINT, SIGTERM or SIGHUP interrupts; the next are ignored, so that the cleaning up ends."""
    caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(number: int, frame: FrameType | None) -> None:
        for name in caught:
            signal.signal(name, signal.SIG_IGN)
        print("\nvalidate-cluster: cleaning up, some seconds …", file=sys.stderr, flush=True)
        raise KeyboardInterrupt

    before = {name: signal.signal(name, interrupt) for name in caught}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
