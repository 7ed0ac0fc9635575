"""Which Debian mirror this machine uses, read from its own apt configuration. Parsing is pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError

MIRROR_VARIABLE = "KLASTER_DEBIAN_MIRROR"


@dataclass(frozen=True)
class Source:
    """One archive that apt knows."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str = ""


@dataclass(frozen=True)
class Mirrors:
    """Base addresses without a slash at the end; `security` is None if this machine has none configured."""

    main: str
    security: str | None


def parse_one_line(text: str) -> Iterator[Source]:
    """The archives in a `*.list` file: `deb [options] URI suite component…`."""
    for line in text.splitlines():
        found = re.match(r"\s*deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s*([^#]*)", line)
        if found:
            options, uri, suite, components = found.groups()
            signed = re.search(r"signed-by=(\S+)", options or "")
            yield Source(uri, (suite,), tuple(components.split()), signed.group(1) if signed else "")


def parse_deb822(text: str) -> Iterator[Source]:
    """The archives in a `*.sources` file: paragraphs of fields."""
    for paragraph in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        last = ""
        for line in paragraph.splitlines():
            if line.startswith("#"):
                continue
            if line[:1] in (" ", "\t") and last:
                fields[last] += " " + line.strip()
            elif ":" in line:
                name, _, value = line.partition(":")
                last = name.strip().lower()
                fields[last] = value.strip()
        enabled = fields.get("enabled", "yes").lower() not in ("no", "false", "0", "off", "without", "disable")
        if enabled and "deb" in fields.get("types", "").split():
            for uri in fields.get("uris", "").split():
                yield Source(
                    uri,
                    tuple(fields.get("suites", "").split()),
                    tuple(fields.get("components", "").split()),
                    fields.get("signed-by", ""),
                )


def choose_mirrors(sources: Iterable[Source]) -> Mirrors:
    """Debian's main archive and its security archive among all that apt knows; LabError if Debian isn't there."""
    debian = [source for source in sources if "main" in source.components and _is_debian(source)]
    main = [s for s in debian if not any(suite.endswith("-security") for suite in s.suites)]
    security = [s for s in debian if any(suite.endswith("-security") for suite in s.suites)]
    if not main:
        raise LabError(
            "this machine's apt configuration names no Debian mirror, and the lab's nodes are Debian: "
            f"set {MIRROR_VARIABLE} to the address of one (http://HOST/debian)"
        )
    # On one host the security archive may be named first: prefer the source that Debian's own key signs.
    best = sorted(main, key=lambda s: "debian-archive" not in s.signed_by)[0]
    return Mirrors(best.uri.rstrip("/"), security[0].uri.rstrip("/") if security else None)


def _is_debian(source: Source) -> bool:
    path = source.uri.rstrip("/").rpartition("/")[2]
    return source.uri.startswith(("http://", "https://")) and (
        path in ("debian", "debian-security") or "debian-archive" in source.signed_by
    )


def read_sources(etc: Path = Path("/etc/apt")) -> list[Source]:
    """Every archive in the machine's apt configuration, mirror lists (`mirror+file:`) followed."""
    found: list[Source] = []
    for path in [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]:
        if path.suffix == ".list" and path.is_file():
            found += parse_one_line(path.read_text(encoding="utf-8", errors="replace"))
        elif path.suffix == ".sources" and path.is_file():
            found += parse_deb822(path.read_text(encoding="utf-8", errors="replace"))
    return [follow_mirror_list(source) for source in found]


def follow_mirror_list(source: Source) -> Source:
    """A `mirror+file:` source becomes the first mirror in that file; others stay as they are."""
    if not source.uri.startswith("mirror+file:"):
        return source
    listed = Path(source.uri.removeprefix("mirror+file:"))
    words = listed.read_text(encoding="utf-8").split() if listed.is_file() else []
    first = next((word for word in words if word.startswith(("http://", "https://"))), source.uri)
    return Source(first, source.suites, source.components, source.signed_by)


def builder_mirrors(program: str) -> Mirrors | None:
    """The mirrors that mmdebstrap's own text has as its defaults; None if they aren't found in it."""
    found = dict(re.findall(r"my \$(mirror|secmirror)\s*=\s*'(https?://[^']+)'", program))
    return Mirrors(found["mirror"].rstrip("/"), found.get("secmirror")) if "mirror" in found else None


def machine_mirrors(
    environment: dict[str, str], etc: Path = Path("/etc/apt"), builder: Path = Path("/usr/bin/mmdebstrap")
) -> Mirrors:
    """The mirrors to use on this machine: the environment's word, else apt's, else (Ubuntu) mmdebstrap's default."""
    if own := environment.get(MIRROR_VARIABLE):
        return Mirrors(own.rstrip("/"), None)
    try:
        return choose_mirrors(read_sources(etc))
    except LabError:
        default = builder_mirrors(builder.read_text(errors="replace")) if builder.is_file() else None
        if default is None:
            raise
        return default
