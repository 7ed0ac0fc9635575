"""The table of faults and its record: what is put in is known before it is, and heal takes out what is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inventory.model import Node
from lab import faults
from lab.errors import LabError
from lab.fault_model import Fault, Memory, Site
from lab.fault_rank import HOOK, hook_text
from lab.plan import Instance, Plan, make_plan
from tests.lab.test_plan import HEAD, cluster


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    others = [Node(name=f"n{number}", address=f"10.77.0.{10 + number}") for number in (1, 2)]
    found = cluster(HEAD, *others, state_dir=str(tmp_path))
    return make_plan(found, Instance("trial"))


class Fake:
    """A fault that only remembers what was done with it."""

    def __init__(self, takes: str = "node", *, breaks: bool = False) -> None:
        self.done: list[str] = []
        self.breaks = breaks
        self.fault = Fault("fake", "Nothing is broken.", self.put, self.undo, self.remember, takes=takes)  # type: ignore[arg-type]

    def remember(self, site: Site) -> Memory:
        return {"was": f"well on {site.node.name}"}

    def put(self, site: Site) -> None:
        self.done.append(f"put {site.node.name}")
        if self.breaks:
            raise LabError("half-way")

    def undo(self, site: Site, memory: Memory) -> None:
        self.done.append(f"undo {site.node.name}: {memory['was']}")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    one = Fake()
    monkeypatch.setitem(faults.FAULTS, "fake", one.fault)
    return one


def test_a_fault_is_known_until_it_is_healed(plan: Plan, fake: Fake) -> None:
    """Each node has its own; the last one goes first; healing again does nothing."""
    faults.put_in(plan, "fake", ["n1", "n2"])
    assert faults.present(plan) == ["fake of n1", "fake of n2"]
    assert faults.heal(plan) == ["fake of n2", "fake of n1"]
    assert fake.done[2:] == ["undo n2: well on n2", "undo n1: well on n1"]
    assert faults.heal(plan) == []


def test_a_fault_that_stopped_half_way_is_healed(plan: Plan, fake: Fake) -> None:
    """What was there before is on disk before anything changes."""
    fake.breaks = True
    with pytest.raises(LabError, match="half-way"):
        faults.put_in(plan, "fake", ["n1"])
    assert json.loads((Path(plan.state_dir) / faults.RECORD).read_text())[0]["memory"] == {"was": "well on n1"}
    assert faults.heal(plan) == ["fake of n1"]


def test_what_can_not_be_undone_is_told_and_stays_known(
    plan: Plan, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are healed all the same."""
    faults.put_in(plan, "fake", ["n1", "n2"])

    def undo(site: Site, memory: Memory) -> None:
        if site.node.name == "n2":
            raise LabError("its disk is gone")

    broken = Fault("fake", "", fake.put, undo, fake.remember)
    monkeypatch.setitem(faults.FAULTS, "fake", broken)
    with pytest.raises(LabError, match="could not undo fake of n2: its disk is gone"):
        faults.heal(plan)
    assert faults.present(plan) == ["fake of n2"]


@pytest.mark.parametrize(
    ("name", "nodes", "said"),
    [
        ("slow-lnk", ["n1"], 'no fault "slow-lnk" (nearest: slow-link)'),
        ("slow-link", [], "takes one node or more"),
        ("slow-link", ["n1", "n1"], "each once"),
        ("slow-link", ["n9"], 'no node "n9"'),
        ("cut", ["n1"], "takes two nodes"),
        ("busy-machine", ["n1"], "takes no node"),
    ],
)
def test_a_wrong_wish_changes_nothing(plan: Plan, name: str, nodes: list[str], said: str) -> None:
    """One sentence says what is wrong with it, and nothing is recorded."""
    with pytest.raises(LabError) as error:
        faults.put_in(plan, name, nodes)
    assert said in str(error.value)
    assert faults.present(plan) == []


def test_a_fault_is_put_in_once(plan: Plan, fake: Fake) -> None:
    """A second time it would remember the fault as what was there before."""
    faults.put_in(plan, "fake", ["n1"])
    with pytest.raises(LabError, match="already"):
        faults.put_in(plan, "fake", ["n1"])


def test_what_this_machine_can_not_do_is_refused_and_said(
    plan: Plan, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never silently nothing: the reason is in the list and in the refusal."""
    unable = Fault("fake", "Nothing.", fake.put, fake.undo, unable=lambda _: "no such module")
    monkeypatch.setitem(faults.FAULTS, "fake", unable)
    with pytest.raises(LabError, match="no such module"):
        faults.put_in(plan, "fake", ["n1"])
    assert fake.done == []
    assert "NOT HERE: no such module." in faults.render_list()


def test_every_fault_has_a_sentence_and_the_name_it_is_listed_by() -> None:
    """The list is for people: a sentence each."""
    for name, fault in faults.FAULTS.items():
        assert fault.name == name
        assert fault.sentence[0].isupper(), name
        assert fault.sentence.endswith("."), name


def test_the_hook_says_that_it_is_a_rehearsal_and_does_nothing_by_itself() -> None:
    """Its text begins with that warning; without orders it leaves Python alone."""
    text = hook_text("kill", 10, 0)
    assert text.startswith('"""REHEARSAL ONLY')
    assert 'WHAT, AT, EVERY = "kill", 10, 0' in text
    assert 'WHAT, AT, EVERY = "", 0, 0' in HOOK.read_text(encoding="utf-8")
