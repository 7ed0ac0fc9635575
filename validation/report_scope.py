"""What a run did not test, said plainly: whatever is missing here is taken for tested."""

from __future__ import annotations

from validation.model import Judgement, Outcome, Stage
from validation.report_data import RunData
from validation.report_words import counted, listed, printable

_LEVEL_LIMITS = {
    "quick": "Faults that show only under long load (heat, a bit flipped once in a thousand steps) need level burn-in.",
    "standard": "Faults that show only after hours (heat, rare bit flips) need level burn-in.",
    "burn-in": "",
}
_QUICK_LEAVES_OUT = (
    "Sharded, split, resumed and restarted trainings, and scaling on other numbers of nodes: they need level standard."
)
_STAGE_WORDS: dict[Stage, str] = {
    "node": "the checks of each node by itself",
    "pairs": "reachability, bandwidth and latency of every pair",
    "cluster": "collectives over all nodes",
    "training": "training on the nodes together",
}


def not_tested(data: RunData, judgement: Judgement) -> tuple[str, ...]:
    """One sentence for each thing this run has no answer about, most important first."""
    lines = [*_substrate(data), *_nodes(data), *_stages(data), *_pairs(data), *_checks(data, judgement), *_gpus(data)]
    limits = [_LEVEL_LIMITS[data.run.level], _QUICK_LEAVES_OUT if data.run.level == "quick" else ""]
    return tuple(printable(line) for line in [*lines, *limits] if line)


def _substrate(data: RunData) -> list[str]:
    if data.run.substrate == "hardware":
        return []
    return ["Hardware: this run saw none. Speeds are those of one machine's software, shaped to what is declared."]


def _nodes(data: RunData) -> list[str]:
    left_out = [node.name for node in data.cluster.nodes if node.name not in data.run.nodes]
    return [f"Nodes not part of this run: {listed(left_out)}."] if left_out else []


def _stages(data: RunData) -> list[str]:
    done = {record.stage for record in data.stages if record.status == "done"}
    reasons = {record.stage: record.reason for record in data.stages if record.status != "done"}
    lines = []
    for stage, words in _STAGE_WORDS.items():
        if stage in done:
            continue
        left_out = "it did not run" if stage in data.run.stages else "this run left it out"
        reason = reasons.get(stage) or ("it did not come to its end" if data.begun(stage) else left_out)
        lines.append(f"Stage {stage} ({words}): {reason.rstrip('.')}.")
    return lines


def _pairs(data: RunData) -> list[str]:
    missing = len(data.pairs) - data.measured_pairs
    if not missing or not any(found.tried for found in data.directions.values()):
        return []
    return [f"Bandwidth of {missing:,} of {counted(len(data.pairs), 'pair')}: not known in both directions."]


def _checks(data: RunData, judgement: Judgement) -> list[str]:
    """Skipped checks of stages that did run, one line a check and not a line for each of two hundred nodes."""
    ran = {record.stage for record in data.stages if record.status == "done"}
    skipped: dict[str, list[str]] = {}
    for result in judgement.results:
        if result.outcome is Outcome.SKIPPED and result.stage in ran:
            skipped.setdefault(result.check, []).append(result.evidence or result.measured)
    lines = []
    for check, why in sorted(skipped.items()):
        reason = f" ({why[0]})" if why[0] and len(set(why)) == 1 else ""
        lines.append(f"Check {check}: skipped on {counted(len(why), 'subject')}{reason}.")
    return lines


def _gpus(data: RunData) -> list[str]:
    if any(node.gpus for node in data.cluster.nodes):
        return []
    return ["GPUs and NCCL: the inventory declares no GPU, so what ran used processors and gloo."]


def still_open(judgement: Judgement) -> tuple[str, ...]:
    """What could not be decided, without the stages that did not run: those stand under "not tested"."""
    stages = tuple(f"Stage {stage}:" for stage in _STAGE_WORDS)
    kept = tuple(line for line in judgement.undecided if not line.startswith(stages))
    return kept if kept or judgement.culprits else judgement.undecided
