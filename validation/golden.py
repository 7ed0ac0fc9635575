"""Golden hashes: the right results of the fingerprint's work, learnt from runs in which like ranks all agreed.

With them two nodes suffice to say which one is wrong, and a node that has no like is compared with its own past. They
lie in reports/CLUSTER/golden.json; take the file away after a change of hardware or libraries that its keys don't tell.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from validation.model import Judgement, Record
from validation.run_folder import RunFolder
from validation.verdicts.silent_errors import new_golden

Golden = dict[str, list[str]]


def load_golden(path: Path) -> Golden:
    """What is known so far; nothing if the file is missing or is none of ours."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(key): [str(one) for one in value] for key, value in found.items() if isinstance(value, list)}


def add_golden(folder: RunFolder, records: Sequence[Record], judgement: Judgement) -> None:
    """Add what this run established; what is there is only made longer, never replaced."""
    known = load_golden(folder.golden)
    new = {key: value for key, value in new_golden(records, judgement).items() if longer(value, known.get(key, []))}
    if new:
        folder.write(folder.golden, json.dumps({**known, **new}, indent=1, sort_keys=True) + "\n")


def longer(value: Sequence[str], known: Sequence[str]) -> bool:
    """Whether a run went on where the known hashes end, and agreed with them until there."""
    return len(value) > len(known) and list(value[: len(known)]) == list(known)
