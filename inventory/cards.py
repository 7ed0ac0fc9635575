"""NVIDIA cards: which generation a name belongs to, and what a generation asks of driver, module flavour and CUDA."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

GenerationName = Literal[
    "kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell", "blackwell-ultra"
]


@dataclass(frozen=True)
class Generation:
    """What cards of one architecture have in common; versions are driver branches and CUDA releases."""

    name: GenerationName
    first_driver: int
    """The branch that brought support (NVIDIA's release notes)."""
    last_driver: int | None
    """The last branch that still supports it; None: today's do."""
    open_modules: bool
    """The open kernel modules support it (Turing and newer)."""
    proprietary_modules: bool
    """The proprietary kernel modules support it (up to Hopper)."""
    first_cuda: tuple[int, int]
    """The first CUDA that compiles for it."""
    last_cuda: tuple[int, int] | None


# Sources: NVIDIA's driver release notes and list of legacy cards, CUDA's release notes (new and removed targets), and
# the README of the open modules ("Turing or later"; Blackwell has no other).
GENERATIONS: tuple[Generation, ...] = (
    Generation("kepler", 319, 470, False, True, (5, 0), (11, 8)),
    Generation("maxwell", 343, 580, False, True, (6, 5), (12, 9)),
    Generation("pascal", 367, 580, False, True, (8, 0), (12, 9)),
    Generation("volta", 384, 580, False, True, (9, 0), (12, 9)),
    Generation("turing", 410, None, True, True, (10, 0), None),
    Generation("ampere", 450, None, True, True, (11, 0), None),
    Generation("ada", 520, None, True, True, (11, 8), None),
    Generation("hopper", 520, None, True, True, (11, 8), None),
    Generation("blackwell", 570, None, True, False, (12, 8), None),
    Generation("blackwell-ultra", 575, None, True, False, (12, 9), None),
)
_BY_NAME = {generation.name: generation for generation in GENERATIONS}

# First match wins: the more telling names (RTX 6000 Ada) stand before those they contain (RTX 6000).
_NAMES: tuple[tuple[str, GenerationName], ...] = (
    (r"\b(G?B300|GB300)\b", "blackwell-ultra"),
    (r"\b(B100|B200|GB200)\b|\bGB10\b|Blackwell|\bRTX 50[5-9]0", "blackwell"),
    (r"\b(H100|H200|H800|H20|GH200)\b", "hopper"),
    (r"\bRTX 40[5-9]0|\bAda\b|\bL(2|4|20|40|40S|40G)\b", "ada"),
    (r"\bRTX 30[5-9]0|\bRTX A\d{3,4}\b|\bA(2|10|10G|10M|16|30|40|100|100X|800)\b|\bPG50[0-9]\b", "ampere"),
    (r"\bRTX 20[5-8]0|\bGTX 16[0-9]{2}|\bT(4|4G|400|600|1000|1200)\b|\bT\d00\b|TITAN RTX|Quadro RTX", "turing"),
    (r"\bV100|TITAN V\b|Quadro GV100", "volta"),
    (r"\bGTX 10[0-9]{2}|\bGT 10[0-9]{2}|\bP(4|6|40|100)\b|Quadro (P\d{3,4}|GP100)|TITAN X[p]?\b|\bMX[12]\d0", "pascal"),
    (r"\bGTX (9[0-9]{2}|7[45]0)|\bM(4|6|10|40|60)\b|Quadro (M|K[126]2)\d{2,3}", "maxwell"),
    (r"\bK(20|40|80|10|8)[a-zA-Z]?\b|\bGTX (6|7)[0-9]{2}|Quadro K\d{3,4}|TITAN( Black| Z)?$", "kepler"),
)


def generation(model: str) -> Generation | None:
    """The generation of a card as nvidia-smi names it; None for a card this table does not know."""
    for pattern, name in _NAMES:
        if re.search(pattern, model):
            return _BY_NAME[name]
    return None


def generation_named(name: GenerationName) -> Generation:
    return _BY_NAME[name]


FIRST_DRIVER_FOR_CUDA: dict[int, int] = {11: 450, 12: 525, 13: 580}
"""CUDA's major release → the oldest branch that runs it (minor version compatibility, CUDA compatibility guide)."""


def cuda_version(text: str) -> tuple[int, int]:
    """ "12.8" as numbers; ValueError for anything else."""
    major, minor = text.split(".")
    return int(major), int(minor)


def consumer(model: str) -> bool:
    """A GeForce or TITAN: no ECC, no P2P over PCIe on most, a desktop may sit on it."""
    return bool(re.search(r"GeForce|TITAN|\bGTX\b", model))
