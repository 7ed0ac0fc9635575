"""A stored run with many faults at once, to be judged again: python -m tests.validation.stored_run writes it anew."""

from __future__ import annotations

from pathlib import Path

from inventory.model import Cluster, Leaf, Network, Node
from tests.simulator.network import Fabric, Faults, Noise
from tests.simulator.run import later_stages, names, node_stage, pairs_stage, reach_records, run_record
from validation.model import STAGES, NodeCheckRecord, Outcome, Record

FILE = Path(__file__).parents[1] / "recordings" / "judged" / "leaves.jsonl"
NODES = names(12)
LEAVES = {node: f"leaf{number // 4 + 1}" for number, node in enumerate(NODES)}


def cluster() -> Cluster:
    """A head and twelve nodes on three leaves."""
    head = Node(name="head", address="10.9.0.100", roles=("controller",), leaf="leaf1")
    nodes = (Node(name=name, address=f"10.9.0.{n}", leaf=LEAVES[name]) for n, name in enumerate(NODES, 1))
    return Cluster(
        name="sim",
        networks=(Network(name="lan", cidr="10.9.0.0/16", speed_gbps=1),),
        nodes=(head, *nodes),
        leaves=tuple(Leaf(name=leaf, oversubscription=1) for leaf in dict.fromkeys(LEAVES.values())),
        substrate="simulation",
    )


def records() -> list[Record]:
    """leaf3's uplink and n2 are slow, one service is down on the head, and n7 sends less than ever before."""
    faults = Faults(send={"n2": 0.3, "n7": 0.9}, receive={"n2": 0.3}, uplinks={"leaf3": 0.4})
    noise = Noise(sigma=0.01, host_starts=0.0, node_starts=0.0)
    pairs, _ = pairs_stage(12, faults, noise, 5, level="quick", fabric=Fabric(LEAVES))
    history = {"runs": 6, "measures": {"sends n7": [0.951, 0.953, 0.95, 0.954, 0.952, 0.951]}, "last": {}}
    run = run_record(NODES, stages=STAGES, level="quick").model_copy(
        update={"inventory": cluster().model_dump(mode="json"), "lock": None, "baselines": {"history": history}}
    )
    down = [
        NodeCheckRecord(
            node=node, check="name-service", outcome=Outcome.FAIL, measured="no answer", required="an answer",
            cause="directory-down", culprit_kind="service", culprit="slapd on head", remedy="systemctl start slapd",
        )
        for node in NODES
    ]  # fmt: skip
    checks = node_stage(NODES)
    return [run, *checks[:-1], *down, checks[-1], *reach_records(NODES), *pairs[1:], *later_stages(NODES)]


def main() -> None:
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text("".join(record.model_dump_json() + "\n" for record in records()), encoding="utf-8")


if __name__ == "__main__":
    main()
