"""Silent data corruption: who computes other bits than its peers, by vote among like hardware and software."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from validation.model import CheckResult, Culprit, FingerprintRecord, Judgement, Outcome, Record
from validation.verdicts.evidence import Evidence
from validation.verdicts.findings import Findings
from validation.verdicts.votes import Count, Errors, count_votes

REQUIRED = "the same bits as its peers, before any reduction"
RARE = 1000
"""A fault that flips a bit once in so many steps: the certificate says how likely the run would have seen it."""


def judge_silent_errors(evidence: Evidence) -> Findings:
    """Named only by the majority of its like (or a golden hash, or its own repeats beside a peer); else undecided."""
    findings = Findings()
    _not_done(evidence, findings)
    for device, records in _like_hardware(evidence).items():
        mixed = _other_software(records, evidence)
        for record in records:
            if record.node in mixed:
                _withhold(record, mixed[record.node], findings)
        _judge_group(device, [record for record in records if record.node not in mixed], evidence, findings)
    return findings


def _not_done(evidence: Evidence, findings: Findings) -> None:
    for record in evidence.fingerprints:
        if record.error:
            remedy = "The check broke, not the node: read the rank's log in the run's folder, run again."
            row = _row(record.node, Outcome.ERROR, f"no result: {record.error}", remedy=remedy)
            findings.results.append(row)
            findings.doubtful.add(record.node)


def _like_hardware(evidence: Evidence) -> dict[str, list[FingerprintRecord]]:
    """By the GPU's name, or the processor's model in the hardware lock."""
    groups: dict[str, list[FingerprintRecord]] = defaultdict(list)
    for record in evidence.fingerprints:
        if not record.error:
            groups[record.device or evidence.cpu_model(record.node)].append(record)
    return groups


def _other_software(records: Sequence[FingerprintRecord], evidence: Evidence) -> dict[str, str]:
    """Node → what of its software differs from most of the group's: its bits can't be compared."""
    odd = {
        r.node: "its versions differ"
        for r in evidence.checks
        if r.check == "versions" and r.outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE)
    }
    found = {record.node: odd[record.node] for record in records if record.node in odd}
    left = [record for record in records if record.node not in found]
    if left:
        usual = _commonest([_software(record) for record in left])
        for record in left:
            if (own := _software(record)) != usual:
                differs = [f"{name} {value}" for name, value in own if (name, value) not in usual]
                found[record.node] = f"it has {', '.join(differs)}"
    return found


def _software(record: FingerprintRecord) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(record.software.items()))


def _commonest(values: Sequence[tuple[tuple[str, str], ...]]) -> tuple[tuple[str, str], ...]:
    return max(sorted(set(values)), key=values.count)


def _withhold(record: FingerprintRecord, why: str, findings: Findings) -> None:
    text = f"withheld: {why}, so other bits would prove nothing"
    findings.results.append(_row(record.node, Outcome.SKIPPED, text, evidence="see check versions"))


def golden_key(device: str, record: FingerprintRecord) -> str:
    """What golden hashes hold for: the same work on the same model with the same software."""
    software = ", ".join(f"{name} {value}" for name, value in _software(record))
    return f"{device}; {software}; seed {record.seed}, {record.steps} steps, {' '.join(record.kinds)}"


def voter_name(record: FingerprintRecord) -> str:
    return f"GPU {record.local_rank} of {record.node}" if record.device else record.node


def _judge_group(device: str, records: Sequence[FingerprintRecord], evidence: Evidence, findings: Findings) -> None:
    if not records:
        return
    known: Mapping[str, Sequence[str]] = evidence.run.baselines.get("golden", {})
    golden = known.get(golden_key(device, records[0]), ())
    voters = {voter_name(record): record.digests for record in records}
    count = count_votes(voters, golden, records[0].kinds)
    by_name = {voter_name(record): record for record in records}
    named = _named(count, by_name, golden)
    for voter in named:
        _blame(by_name[voter], count.errors[voter], len(records), findings)
    open_ = count.undecided or set(count.errors) - set(named)
    clean = [record for voter, record in by_name.items() if voter not in count.errors]
    if open_:
        _leave_open(device, [record for record in records if voter_name(record) not in named], count, findings)
    elif count.against_golden and len(records) < 3 and not named:
        _leave_open(device, records, count, findings)
    elif clean:
        _pass(device, clean, count, bool(golden), findings)


def _named(count: Count, voters: Mapping[str, FingerprintRecord], golden: Sequence[str]) -> list[str]:
    """Those to blame. When half of three or more err, each in its own way, the work isn't deterministic: nobody."""
    many = len(voters) >= 3 and 2 * len(count.errors) >= len(voters) and not golden
    return [] if many else list(count.errors)


def _blame(record: FingerprintRecord, errors: Errors, voters: int, findings: Findings) -> None:
    gpu = bool(record.device)
    by = {
        "peers": f"{voters - 1} like peers",
        "golden": "the golden hash",
        "own repeats": "its peer and its own repeats",
    }
    judges = ", ".join(by[one] for one in sorted(errors.decided))
    often = "every time (lasting)" if errors.lasting else f"in {errors.wrong} of {errors.tried} repetitions (passing)"
    fact = (
        f"other bits than {judges} {often}, first in the {errors.first_kind} of episode {errors.first_episode + 1}; "
        f"each by itself, {', '.join(record.settings)}"
    )
    what = f"GPU {record.local_rank} of {record.node}" if gpu else record.node
    cure = (
        "reset it, run again, and replace it if it comes back"
        if gpu
        else "test its memory (memtest86+) and processor under load, undo overclocking, and replace what fails"
    )
    remedy = f"Do not train on {what}: {cure}."
    findings.culprits.append(
        Culprit(kind="gpu" if gpu else "node", subject=what, cause="silent-data-corruption", evidence=(fact,),
                remedy=remedy, node=record.node)
    )  # fmt: skip
    findings.results.append(_row(record.node, Outcome.FAIL, fact, remedy=remedy))


def _leave_open(device: str, records: Sequence[FingerprintRecord], count: Count, findings: Findings) -> None:
    names = ", ".join(voter_name(record) for record in records)
    if len(count.errors) >= 2:
        text = f"{names} differ, each now and then: the work is not deterministic there, or many are faulty"
        test = "run `python3 fingerprint.py` twice on one of them"
    elif count.undecided:
        text = f"{names} differ in {len(count.undecided)} episodes, and nothing says whose result is right"
        test = f"a third rank with {device or 'the same processor'} would tell"
    else:
        text = f"{names} give other bits than the golden hash of an earlier run"
        test = "if a library was changed, take this cluster's golden.json away; else add a third like node"
    for record in records:
        findings.results.append(_row(record.node, Outcome.INCONCLUSIVE, text))
        findings.doubtful.add(record.node)
    findings.undecided.append(f"Silent errors: {text}; {test}.")


def _pass(device: str, clean: Sequence[FingerprintRecord], count: Count, golden: bool, findings: Findings) -> None:
    steps = clean[0].steps_done
    alone = len(clean) == 1 and not golden and not count.errors
    beside = "itself only: no like peer" if alone else f"{len(clean)} like ranks" + " and the golden hash" * golden
    text = f"{steps} steps each the same as {beside}"
    seen = 1 - (1 - 1 / RARE) ** steps
    advice = "differs from the golden hash of an earlier run, which all like ranks outvote" * bool(count.against_golden)
    evident = f"{device}; {', '.join(clean[0].settings)}; an error once in {RARE:,} steps is seen with {seen:.0%}"
    outcome = Outcome.NOT_APPLICABLE if alone else Outcome.PASS
    for record in clean:
        findings.results.append(_row(record.node, outcome, text, evidence=evident, advice=advice))


def new_golden(records: Sequence[Record], judgement: Judgement) -> dict[str, list[str]]:
    """Digests that later runs may trust: of groups of two or more ranks that all agreed in everything."""
    evidence = Evidence(records)
    found: dict[str, list[str]] = {}
    for device, group in _like_hardware(evidence).items():
        once = {tuple(passes[:1] for passes in record.digests) for record in group}
        steady = all(len(set(passes)) == 1 for record in group for passes in record.digests)
        alike = len(group) >= 2 and len(once) == 1 and len({_software(record) for record in group}) == 1
        if alike and steady and all(judgement.nodes.get(record.node) is Outcome.PASS for record in group):
            found[golden_key(device, group[0])] = [passes[0] for passes in group[0].digests]
    return found


def _row(
    node: str, outcome: Outcome, measured: str, *, evidence: str = "", remedy: str = "", advice: str = ""
) -> CheckResult:
    return CheckResult(
        subject=node, stage="training", check="silent-errors", outcome=outcome, measured=measured, required=REQUIRED,
        origin="majority of like hardware and software", evidence=evidence, remedy=remedy, advice=advice,
    )  # fmt: skip
