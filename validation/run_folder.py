"""Every path that a run writes, in one class: results, certificate, report, metrics, logs, the link to the latest."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from validation.model import RECORD, Record

LEAST_FREE_BYTES = 50 * 2**20
"""A run of four nodes writes under 2 MiB; logs of hundreds of ranks some tens."""


class RunFolderError(Exception):
    """The folder of a run can't be made, written or read; the text is one sentence with the remedy."""


class RunFolder:
    """`reports/<cluster>/<UTC time>/`, or an existing folder that is to be judged again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def results(self) -> Path:
        return self.path / "results.jsonl"

    @property
    def certificate(self) -> Path:
        return self.path / "certificate.json"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.prom"

    @property
    def signatures(self) -> Path:
        """The certificates' signatures, so that judging again without the key gives the same bytes."""
        return self.path / "signatures.json"

    @property
    def node_certificates(self) -> Path:
        return self.path / "certificates"

    def node_certificate(self, node: str) -> Path:
        return self.node_certificates / f"{node}.json"

    @property
    def golden(self) -> Path:
        """Of the cluster, beside its runs: hashes of right results, by hardware and software."""
        return self.path.parent / "golden.json"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @classmethod
    def create(cls, root: Path, cluster: str, started: datetime) -> RunFolder:
        """A new folder under `root`; RunFolderError if it can't be written or the disk is full."""
        name = started.strftime("%Y-%m-%dT%H-%M-%SZ")
        try:
            parent = root / cluster
            parent.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(parent).free
            if free < LEAST_FREE_BYTES:
                raise RunFolderError(f"{parent} has {free // 2**20} MiB free; a run needs {LEAST_FREE_BYTES // 2**20}")
            path = parent / name
            while path.exists():  # two runs within a second
                path = parent / f"{name}-{secrets.token_hex(2)}"
            path.mkdir()
            folder = cls(path)
            folder.logs.mkdir()
            folder.results.touch()
        except OSError as error:
            raise RunFolderError(f"cannot write {root}: {error.strerror}; say another folder with --out") from error
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The folder of a finished run; RunFolderError if it holds no results."""
        folder = cls(path.resolve())
        if not folder.results.is_file():
            raise RunFolderError(f"no results.jsonl in {path}; give the folder of a run, e.g. reports/CLUSTER/latest")
        return folder

    def discard(self) -> None:
        """Remove a folder that nothing was recorded in."""
        if self.results.exists() and self.results.stat().st_size == 0:
            shutil.rmtree(self.path, ignore_errors=True)

    def append(self, record: Record) -> None:
        """Write one record and flush it: what was measured survives whatever comes next. RunFolderError if it can't."""
        with told(self.results), self.results.open("a", encoding="utf-8") as file:
            file.write(record.model_dump_json() + "\n")

    def records(self) -> list[Record]:
        """All records; a last line that a killed run left unfinished is dropped, any other is an error."""
        return list(self._parsed())

    def _parsed(self) -> Iterator[Record]:
        with told(self.results):
            lines = self.results.read_bytes().splitlines(keepends=True)  # a text has more ends of lines than JSON knows
        for number, line in enumerate(lines, 1):
            try:
                yield RECORD.validate_json(line)
            except ValueError as error:
                if number == len(lines) and not line.endswith(b"\n"):
                    return
                raise RunFolderError(
                    f"{self.results}, line {number} is no record{_why(error)}; restore the file from a copy"
                ) from None

    def results_sha256(self) -> str:
        return hashlib.sha256(self.results.read_bytes()).hexdigest()

    def write(self, path: Path, text: str) -> None:
        """Write then rename, so that a reader never sees half a file; RunFolderError if it can't."""
        new = path.with_name(path.name + ".new")
        with told(path):
            new.write_text(text, encoding="utf-8")
            new.replace(path)

    def point_latest(self) -> None:
        """Make `latest` beside this folder point to it, in one step."""
        link = self.path.parent / f".latest-{os.getpid()}"
        with told(link):
            link.unlink(missing_ok=True)
            link.symlink_to(self.path.name)
            link.replace(self.path.parent / "latest")


@contextmanager
def told(path: Path) -> Iterator[None]:
    """A full disk or a folder that was taken away in the middle is one sentence, not a fault of ours."""
    try:
        yield
    except OSError as error:
        raise RunFolderError(f"{path}: {error.strerror}; mend that, or say another folder with --out") from error


def _why(error: ValueError) -> str:
    """What pydantic has against a line, without its page of names."""
    return f" ({error.errors()[0]['msg'].partition(';')[0]})" if isinstance(error, ValidationError) else ""
