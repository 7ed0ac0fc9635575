"""Kill, freeze, fill, shape and unplug things in a real lab: the right alert fires within its time, and no other."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from files.monitoring.alerts import ALERTS
from lab.plan import Instance, make_plan
from tests.lab.handle import Lab
from tests.monitoring import live_alerts
from tests.monitoring.live import told
from tests.monitoring.troubles import NOT_LIVE, Step, Trouble, together, troubles

Alerted = tuple[str, str]
NOBODYS_FAULT = ("DiskFillsUp", "MemoryPressure", "OutOfMemoryKill", "TimeNotSynchronised")
"""The lab's nodes share memory, disk and clock of a machine that does other work too."""
SLACK_S = 150.0
"""Beyond an alert's own wait: two scrapes, two evaluations, Slurm's and the kernel's own time, a busy machine."""
GOES_S = 1200.0
"""LinkFlaps looks back over a quarter of an hour."""
WAITS_S = {alert.name: float(alert.wait[:-1]) * {"s": 1, "m": 60, "h": 3600}[alert.wait[-1]] for alert in ALERTS}
SLOWER_S = {"SlurmNodeNotResponding": 240.0, "GpuDriverHangs": 60.0, "CertificateFailed": 240.0, "AgentStale": 120.0,
            "NodeDrained": 240.0}  # fmt: skip
"""What must pass before an alert's wait begins: SlurmdTimeout, a certification, nvidia-smi's own deadline."""


def test_every_alert_is_had_live_or_has_a_reason(tmp_path: Path) -> None:
    """No alert is forgotten, and none has both a trouble and a reason."""
    live = [name for one in (*troubles(tmp_path), *together()) for name in one.alerts]
    assert sorted([*live, *NOT_LIVE]) == sorted(alert.name for alert in ALERTS)


class Watch:
    """Looks at what Alertmanager would tell, all the time, and keeps what nobody expected."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.now: set[Alerted] = set()
        self.strays: dict[Alerted, str] = {}
        self._expected: dict[Alerted, Trouble] = {}
        self._lock = threading.Lock()

    @contextmanager
    def watching(self) -> Iterator[None]:
        end = threading.Event()

        def look() -> None:
            while not end.wait(4):
                try:
                    self._take(told(self.lab))
                except (AssertionError, ValueError, subprocess.TimeoutExpired) as error:
                    print(f"Alertmanager could not be asked: {error}")

        self._take(told(self.lab))
        self.strays.clear()  # what is told before any trouble is nobody's doing
        before = set(self.now)
        with self._lock:
            self._expected.update(dict.fromkeys(before, Trouble((), "", "before", (), ())))
        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()

    def _take(self, found: set[Alerted]) -> None:
        with self._lock:
            self.now = found
            for one in found - set(self._expected):
                if one[0] not in NOBODYS_FAULT:
                    going = [f"{trouble.alerts}" for trouble in self._expected.values() if trouble.put]
                    self.strays.setdefault(one, ", ".join(going[-4:]))

    def expect(self, trouble: Trouble) -> list[Alerted]:
        ours = [(name, trouble.node) for name in trouble.alerts]
        with self._lock:
            self._expected.update(dict.fromkeys(ours, trouble))
        return ours

    def forget(self, ours: list[Alerted]) -> None:
        with self._lock:
            for one in ours:
                del self._expected[one]


def act(lab: Lab, steps: tuple[Step, ...]) -> None:
    for step in steps:
        if step[0] == "ssh":
            lab.ssh(step[1], step[2], timeout_s=600)
        elif step[0] == "flap":
            flap(lab, step[1], int(step[2]))
        else:
            lab.lab(*step)


def flap(lab: Lab, node: str, times: int) -> None:
    """Pull and plug the node's cable at the switch's end."""
    plan = make_plan(lab.cluster, Instance(lab.name))
    for _ in range(times):
        for state in ("down", "up"):
            words = ["ip", "-n", plan.instance.switch, "link", "set", plan.node(node).ports[0].outer, state]
            subprocess.run(words, check=True, timeout=10)
            time.sleep(2)


def play(watch: Watch, trouble: Trouble) -> None:
    """Put it in until all of its alerts are told, take it out until none is; AssertionError if that does not come."""
    ours = watch.expect(trouble)
    seen: dict[str, live_alerts.Seen] = {}
    began = time.monotonic()
    try:
        act(watch.lab, trouble.put)
        deadline = began + max(WAITS_S[name] + SLOWER_S.get(name, 0.0) for name in trouble.alerts) + SLACK_S
        while missing := [one for one in ours if one[0] not in seen]:
            for one in missing:
                if one in watch.now:
                    fired = round(time.monotonic() - began)
                    seen[one[0]] = {"how": trouble.how, "fired_s": fired, "gone_s": 0}
            assert time.monotonic() < deadline, f"{missing} did not fire in {deadline - began:.0f} s: {trouble.how}"
            time.sleep(1)
    finally:
        act(watch.lab, trouble.undo)
    ended = time.monotonic()
    left = set(ours)
    while left:
        for one in left - watch.now:
            seen[one[0]]["gone_s"] = round(time.monotonic() - ended)
        left &= watch.now
        assert time.monotonic() - ended < GOES_S, f"{left} did not go: {trouble.how}"
        time.sleep(1)
    watch.forget(ours)
    live_alerts.save(seen)
    print(f"{time.strftime('%H:%M:%S')} {seen}", flush=True)


def lane(watch: Watch, some: Iterable[Trouble]) -> list[str]:
    """One after another; a trouble that fails does not keep the next ones from their turn. What failed."""
    failures = []
    for trouble in some:
        try:
            play(watch, trouble)
        except (AssertionError, subprocess.SubprocessError) as error:
            failures.append(str(error))
            print(f"{time.strftime('%H:%M:%S')} FAILED {error}", flush=True)
    return failures


def group(watch: Watch, lanes: Mapping[str, list[Trouble]], name: str) -> list[str]:
    """The lanes `name/…` side by side, then the lane `name`."""
    parts = [some for one, some in lanes.items() if one.startswith(f"{name}/")]
    with ThreadPoolExecutor(max_workers=max(1, len(parts))) as pool:
        failures = [failure for found in pool.map(lambda some: lane(watch, some), parts) for failure in found]
    return failures + lane(watch, lanes.get(name, ()))


@pytest.mark.full
def test_the_right_alert_fires_within_its_time_and_no_other(watched: Lab, tmp_path: Path) -> None:
    """Each trouble of the table on a watched lab; what was seen goes into the table of docs/monitoring.md.

    Some 45 minutes.
    """
    watched.ssh("head", "scontrol update nodename=n1,n2 state=resume", check=False)
    watch = Watch(watched)
    lanes: dict[str, list[Trouble]] = defaultdict(list)
    for trouble in troubles(tmp_path / "cards"):
        lanes[trouble.lane or trouble.node].append(trouble)
    names = dict.fromkeys(name.partition("/")[0] for name in lanes)
    with watch.watching():
        with ThreadPoolExecutor(max_workers=len(names)) as pool:
            found = list(pool.map(lambda name: group(watch, lanes, name), names))
        found.append(lane(watch, together()))
    assert [failure for failures in found for failure in failures] == []
    assert watch.strays == {}
