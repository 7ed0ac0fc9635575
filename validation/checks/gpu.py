"""Verdicts on a node's NVIDIA cards at rest: which they are, driver, health, kernel log, link."""

from __future__ import annotations

from typing import Any

from inventory.cards import generation
from inventory.hardware import FoundGpu
from validation.checks.gpu_smi import (
    KernelEvent,
    Smi,
    SmiLog,
    UnreadableError,
    bus_id,
    parse_kernel,
    parse_nvlink,
    parse_smi,
    unknown_fields,
)
from validation.checks.gpu_xid import meaning
from validation.checks.node import (
    Finding,
    ProbeError,
    Subject,
    answer,
    failed,
    inconclusive,
    not_applicable,
    passed,
    problem,
)
from validation.model import Outcome

LOCK = "inventory, hardware lock"
NO_GPU = "no GPU declared or locked"
MISMATCH = "Driver/library version mismatch"
HANGS_REMEDY = "drain and reboot the node; then dmesg | grep -i -e xid -e nvrm"
MEMORY_TOLERANCE = 0.02
"""Drivers reserve a little more or less of the memory from one branch to the next."""


def has_gpus(subject: Subject) -> bool:
    return bool(subject.node.gpus or (subject.locked and subject.locked.gpus))


def card(subject: Subject, where: str) -> str:
    """How a culprit is called: by its place on the bus, which a person can find in the machine."""
    return f"GPU {where} of {subject.name}"


def smi_log(subject: Subject) -> SmiLog | Finding:
    """What nvidia-smi says, or the finding that it says nothing: a hang and a mismatch are findings, not errors."""
    why = problem(subject.probe, "gpu_smi")
    if "no answer" in why:
        return failed(
            f"nvidia-smi: {why}", "an answer", "validator's deadline", "driver-hangs", HANGS_REMEDY, culprit_kind="gpu"
        )
    found = answer(subject.probe, "gpu_smi")
    said = (found["stdout"] + found["stderr"]).strip()
    if MISMATCH in said:
        return _mismatch(subject, said)
    if found["status"] != 0 and "<nvidia_smi_log" not in said:
        first = said.splitlines()[0] if said else "no message"
        remedy = "look at dmesg | grep -i nvrm; run the deploy again; reboot"
        return failed(f"nvidia-smi: {first}", "an answer", "nvidia-smi", "driver", remedy, evidence=said[:500])
    try:
        return parse_smi(found["stdout"])
    except UnreadableError as error:
        return inconclusive(str(error), "keep run and output; this version of nvidia-smi is not known", cause="driver")


def readable(subject: Subject) -> SmiLog | Finding:
    """For checks that are not about the driver: one that gives no answer is told once, by `gpus` and `gpu-driver`."""
    log = smi_log(subject)
    if isinstance(log, Finding) and log.outcome is Outcome.FAIL:
        return Finding(Outcome.SKIPPED, "nvidia-smi gives no usable answer: see gpus")
    return log


def _mismatch(subject: Subject, said: str) -> Finding:
    driver: dict[str, Any] = answer(subject.probe, "gpu_driver")
    measured = f"kernel module {driver['module'] or 'none'}, library {driver['library'] or 'unknown'}"
    remedy = (
        "drain and reboot the node, or unload and load the module; the packages must be held "
        "(deploys/versions.py shows both versions)"
    )
    return failed(measured, "the same version", "NVIDIA's driver", "driver-mismatch", remedy, evidence=said[:500])


# --- which cards -------------------------------------------------------------------------------------------------


def gpus(subject: Subject) -> Finding:
    """Every locked card is there, at its place, with its memory; no other; a card nobody knows is never a pass."""
    if not has_gpus(subject):
        return not_applicable(NO_GPU)
    log = smi_log(subject)
    if isinstance(log, Finding):
        return log
    locked = subject.locked.gpus if subject.locked else ()
    required = f"{max(subject.node.gpu_count, len(locked))} GPUs"
    if lost := _lost(subject, log, locked, required):
        return lost
    if wrong := _wrong(subject, log, locked, required):
        return wrong
    measured = ", ".join(f"{one.name} at {one.bus_id}" for one in log.gpus)
    strange = [one.name for one in log.gpus if not one.architecture and generation(one.name) is None]
    if strange:
        return inconclusive(
            f"unknown card: {', '.join(strange)}", "a newer driver may know its name; else say its generation in Gpu()",
            required, LOCK, "gpu-unknown",
        )  # fmt: skip
    if not locked:
        return inconclusive(measured, "run deploys/discover.py to lock the cards", required, LOCK)
    desktop = [one.bus_id for one in log.gpus if one.display]
    advice = f"a desktop is on {', '.join(desktop)}: it takes memory and time of jobs" if desktop else ""
    return passed(measured, required, LOCK, advice=advice)


def _lost(subject: Subject, log: SmiLog, locked: tuple[FoundGpu, ...], required: str) -> Finding | None:
    there = {one.uuid for one in log.gpus}
    missing = [gpu for gpu in locked if gpu.uuid not in there]
    declared = subject.node.gpu_count
    if not missing and len(log.gpus) >= declared:
        return None
    places = ", ".join(bus_id(gpu.bus_id) for gpu in missing)
    events = [f"Xid {e.xid}: {e.text}" for e in _events(subject)[0] if e.bus_id in places]
    names = "; ".join(f"{gpu.model} at {bus_id(gpu.bus_id)}" for gpu in missing) or "which, the lock does not know"
    return failed(
        f"{len(log.gpus)} GPUs; missing: {names}",
        required,
        LOCK,
        "gpu-lost",
        "reboot once; if it stays away, reseat the card and its power, then try it in another slot",
        evidence="\n".join(events[:5]),
        culprit_kind="gpu",
        culprit=card(subject, places) if places else "",
    )


def _wrong(subject: Subject, log: SmiLog, locked: tuple[FoundGpu, ...], required: str) -> Finding | None:
    """A card of another model than declared, with other memory, or at another place than locked."""
    declared = {gpu.model for gpu in subject.node.gpus}
    by_uuid = {gpu.uuid: gpu for gpu in locked}
    for one in log.gpus:
        found = by_uuid.get(one.uuid)
        if declared and one.name not in declared:
            remedy = "correct the inventory, or put the declared card in"
            return _about(subject, one, f"{one.name}", ", ".join(sorted(declared)), "gpu-model", remedy)
        if locked and found is None:
            remedy = "if the card was changed on purpose: deploys/discover.py --data accept=NODE"
            return _about(subject, one, f"{one.uuid} is not in the lock", required, "gpu-changed", remedy)
        if found and bus_id(found.bus_id) != one.bus_id:
            remedy = "a card was moved: accept it with deploys/discover.py --data accept=NODE"
            return _about(subject, one, f"at {one.bus_id}", f"at {bus_id(found.bus_id)}", "gpu-moved", remedy)
        if found and one.memory_mib and abs(one.memory_mib - found.memory_mib) > MEMORY_TOLERANCE * found.memory_mib:
            remedy = "ECC was switched, or memory was taken out of use: nvidia-smi -q -d ECC,ROW_REMAPPER"
            return _about(subject, one, f"{one.memory_mib} MiB", f"{found.memory_mib} MiB ± 2 %", "gpu-memory", remedy)
    return None


def _about(subject: Subject, one: Smi, measured: str, required: str, cause: str, remedy: str) -> Finding:
    return failed(
        f"{one.bus_id}: {measured}",
        required,
        LOCK,
        cause,
        remedy,
        culprit_kind="gpu",
        culprit=card(subject, one.bus_id),
    )


# --- the driver --------------------------------------------------------------------------------------------------


def gpu_driver(subject: Subject) -> Finding:
    """Loaded module, library and declared set are one version, and the CUDA of torch runs on it."""
    if not has_gpus(subject):
        return not_applicable(NO_GPU)
    log = smi_log(subject)
    if isinstance(log, Finding):
        return log
    driver: dict[str, Any] = answer(subject.probe, "gpu_driver")
    measured = f"nvidia-smi {log.driver}, module {driver['module'] or '?'}, library {driver['library'] or '?'}"
    versions = {one for one in (log.driver, driver["module"], driver["library"]) if one}
    if len(versions) > 1:
        remedy = "drain and reboot the node; the packages must be held (deploys/versions.py)"
        return failed(measured, "one version", "NVIDIA's driver", "driver-mismatch", remedy)
    stack = subject.cluster.gpu_stack
    if stack and not log.driver.startswith(f"{stack.set.driver}."):
        remedy = "run the deploy on the drained node"
        return failed(measured, f"{stack.set.driver}.x of {stack.versions}", "inventory", "driver-version", remedy)
    wanted = subject.cluster.training.cuda
    if (
        wanted
        and log.cuda
        and log.cuda.split(".")[0].isdigit()
        and int(log.cuda.split(".")[0]) < int(wanted.split(".")[0])
    ):
        remedy = "a newer driver, or a torch for an older CUDA"
        return failed(f"CUDA up to {log.cuda}", f"CUDA {wanted} of torch", "inventory", "driver-cuda", remedy)
    return passed(measured, "one version", "NVIDIA's driver")


# --- health ------------------------------------------------------------------------------------------------------


def gpu_health(subject: Subject) -> Finding:
    """No uncorrectable memory error, no retirement or remap that failed or waits, no brake, no heat at rest."""
    if not has_gpus(subject):
        return not_applicable(NO_GPU)
    log = readable(subject)
    if isinstance(log, Finding):
        return log
    required = "no uncorrectable error, nothing pending"
    for one in log.gpus:
        if bad := _illness(one):
            measured, cause, remedy = bad
            return failed(
                f"{one.bus_id}: {measured}", required, "nvidia-smi", cause, remedy, culprit_kind="gpu",
                culprit=card(subject, one.bus_id), evidence=f"{one.name} {one.uuid}",
            )  # fmt: skip
    if odd := unknown_fields(log):
        remedy = "this answer of nvidia-smi is not known: look at the card with nvidia-smi -q"
        return inconclusive("; ".join(odd[:6]), remedy, required, "nvidia-smi", "gpu-unknown")
    old = [
        f"{one.bus_id} has had {one.uncorrectable_aggregate} uncorrectable errors in its life"
        for one in log.gpus
        if one.uncorrectable_aggregate
    ]
    without = [one.bus_id for one in log.gpus if one.ecc is False]
    advice = [*old, *([f"ECC is off on {', '.join(without)}"] if without else [])]
    counted = sum(one.uncorrectable_volatile is not None for one in log.gpus)
    measured = f"{len(log.gpus)} GPUs; {counted} of them count errors (consumer cards do not)"
    return passed(measured, required, "nvidia-smi", advice="; ".join(advice))


def _illness(one: Smi) -> tuple[str, str, str] | None:
    """Measured, cause and remedy of the worst thing a card says of itself."""
    replace = "reset the card (nvidia-smi -r) on the drained node; if it comes back, replace the card (RMA)"
    if one.remap_failed:
        return "a row of memory could not be remapped", "gpu-memory-worn", "replace the card (RMA)"
    if one.uncorrectable_volatile:
        return f"{one.uncorrectable_volatile} uncorrectable memory errors since the driver loaded", "gpu-ecc", replace
    if one.remap_pending or one.retirement_pending:
        waits = "memory waits to be taken out of use"
        return waits, "gpu-reset-due", "drain the node and reset the card (nvidia-smi -r) or reboot"
    if one.retired_pages is not None and one.retired_pages >= 60:
        return f"{one.retired_pages} retired pages", "gpu-memory-worn", "replace the card (NVIDIA's limit is 60)"
    if one.recovery_action not in ("", "None"):
        return f"the driver asks for: {one.recovery_action}", "gpu-reset-due", "drain the node and do what it asks for"
    if "hw_power_brake_slowdown" in one.slowed_by:
        return "braked by its power supply", "gpu-power", "power supply, its cables, and the machine's power limit"
    if "hw_thermal_slowdown" in one.slowed_by or "hw_slowdown" in one.slowed_by:
        return f"braked at rest at {one.temperature_c} °C", "gpu-heat", "fan, dust, air flow, thermal paste"
    if one.temperature_c and one.slowdown_c and one.temperature_c >= one.slowdown_c:
        return f"{one.temperature_c} °C at rest", "gpu-heat", "fan, dust, air flow"
    return None


# --- between cards -----------------------------------------------------------------------------------------------


def gpu_nvlink(subject: Subject) -> Finding:
    """Every NVLink that is there is up, and like cards have as many; cards without it are none of this."""
    if not has_gpus(subject):
        return not_applicable(NO_GPU)
    log = readable(subject)
    if isinstance(log, Finding):
        return log
    found = answer(subject.probe, "gpu_nvlink")
    links = parse_nvlink(found["stdout"]) if found["status"] == 0 else {}
    if not any(links.values()):
        return not_applicable("no NVLink")
    most = max(len(one) for one in links.values())
    places = {one.uuid: one.bus_id for one in log.gpus}
    required = f"{most} links, all up"
    for uuid, one in links.items():
        down = [str(number) for number, speed in one.items() if speed is None]
        if down or len(one) < most:
            where = places.get(uuid, uuid)
            measured = f"{where}: link {', '.join(down)} down" if down else f"{where}: {len(one)} links"
            remedy = "nvidia-smi nvlink -s and -e; reseat the bridge or card; look at the fabric manager"
            return failed(
                measured, required, "nvidia-smi, like cards", "nvlink", remedy, culprit_kind="gpu",
                culprit=card(subject, where),
            )  # fmt: skip
    speeds = sorted({f"{speed:g} GB/s" for one in links.values() for speed in one.values() if speed})
    return passed(f"{len(links)} GPUs with {most} links of {', '.join(speeds)}", required, "nvidia-smi, like cards")


# --- the kernel log ----------------------------------------------------------------------------------------------


def _events(subject: Subject) -> tuple[tuple[KernelEvent, ...], tuple[str, ...]]:
    if problem(subject.probe, "gpu_kernel"):
        return (), ()
    return parse_kernel(str(answer(subject.probe, "gpu_kernel")).splitlines())


def gpu_kernel_log(subject: Subject) -> Finding:
    """No message of the driver since boot that means a broken card or link; a number nobody knows is no pass."""
    if not has_gpus(subject):
        return not_applicable(NO_GPU)
    if why := problem(subject.probe, "gpu_kernel"):
        raise ProbeError(f"gpu_kernel: {why}")
    events, odd = _events(subject)
    required = "no Xid of hardware since boot"
    serious = [(event, said) for event in events if (said := meaning(event)).severity == "hardware"]
    if serious:
        event, said = serious[0]
        where = dict.fromkeys(one.bus_id for one, _ in serious)
        return failed(
            f"{event.bus_id}: {_named(event)}", required, "kernel log", said.cause, said.remedy, culprit_kind="gpu",
            culprit=card(subject, ", ".join(where)),
            evidence="\n".join(f"{one.bus_id} {_named(one)}" for one, _ in serious[:8]),
        )  # fmt: skip
    unknown = [_named(event) for event in events if meaning(event).severity == "unknown"]
    if unknown or odd:
        remedy = "look the number up in NVIDIA's list of Xid errors"
        return inconclusive("; ".join([*unknown, *odd][:4]), remedy, required, "kernel log", "gpu-unknown")
    advice = "; ".join(dict.fromkeys(f"{event.bus_id} {_named(event)}" for event in events))
    return passed(f"{len(events)} messages" if events else "none", required, "kernel log", advice=advice)


def _named(event: KernelEvent) -> str:
    return f"Xid {event.xid}: {event.text}" if event.xid is not None else event.text
