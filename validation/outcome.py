"""From records to what people read: judgement, certificate, report, metrics; the same for a run and a re-judgement."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from validation.model import Judgement, Outcome
from validation.printing import tell, wants_color
from validation.run_folder import RunFolder, RunFolderError
from validation.run_options import UsageError
from validation.verdicts.evidence import NoRunRecordError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from validation.signing import Signer

EXIT_STATUS = {Outcome.PASS: 0, Outcome.FAIL: 1}
EXIT_UNDECIDED = 2


@dataclass(frozen=True)
class Finished:
    """What a run came to."""

    judgement: Judgement
    certificate: dict[str, Any]
    certificate_text: str
    node_certificates: dict[str, str]
    """Node that passed → the text of its own certificate."""

    @property
    def status(self) -> int:
        """0 only for a certified cluster: a partial run that failed nowhere could not judge the whole."""
        if self.judgement.verdict is Outcome.PASS and not self.certificate["certified"]:
            return EXIT_UNDECIDED
        return EXIT_STATUS.get(self.judgement.verdict, EXIT_UNDECIDED)


def finish(folder: RunFolder, key: Ed25519PrivateKey | None = None) -> Finished:
    """Judge what the folder holds and write certificates, report and metrics; reads no clock, contacts nobody.

    Certificates are signed with `key`; without one they get the signature that the run left, as long as it fits.
    """
    from validation.certificate import build_certificate, certificate_json
    from validation.metrics import render_metrics
    from validation.report import render_report
    from validation.signing import Signer
    from validation.verdict import judge

    records = folder.records()
    judgement = judge(records)
    signer = Signer(key, folder.signatures)
    certificate = signer.signed("certificate", build_certificate(records, judgement, folder.results_sha256()))
    text = certificate_json(certificate)
    folder.write(folder.certificate, text)
    own = _write_node_certificates(folder, certificate, signer)
    if key:
        folder.write(folder.signatures, signer.text)
    folder.write(folder.report, render_report(records, judgement, certificate))
    folder.write(folder.metrics, render_metrics(certificate, records))
    return Finished(judgement, certificate, text, own)


def _write_node_certificates(folder: RunFolder, certificate: dict[str, Any], signer: Signer) -> dict[str, str]:
    """Write one for each node that passed, and take away those of nodes that by this judgement do not."""
    from validation.certificate import certificate_json
    from validation.certificate_node import node_certificates

    texts = {
        name: certificate_json(signer.signed(f"certificates/{name}", document))
        for name, document in node_certificates(certificate).items()
    }
    folder.node_certificates.mkdir(exist_ok=True)
    for old in set(folder.node_certificates.glob("*.json")) - {folder.node_certificate(name) for name in texts}:
        old.unlink()
    for name, text in texts.items():
        folder.write(folder.node_certificate(name), text)
    return texts


def show(finished: Finished, folder: RunFolder, *, as_json: bool, slurm: Sequence[str] = ()) -> None:
    """The certificate on stdout and the summary on stderr, or the summary on stdout; the report's path comes last."""
    from validation.summary import render_summary

    stream = sys.stderr if as_json else sys.stdout
    if as_json:
        tell(finished.certificate_text, sys.stdout)
    width = shutil.get_terminal_size((100, 24)).columns
    text = render_summary(finished.certificate, finished.judgement, width=width, color=wants_color(stream)) + "\n"
    if slurm:
        text += "Slurm\n" + "".join(f"  - {line}\n" for line in slurm) + "\n"
    tell(f"{text}Report  {shown_path(folder.report)}\n", stream)


def shown_path(path: Path) -> str:
    """Relative to the current folder where it lies below it."""
    path = path.resolve()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def rejudge(path: Path, *, as_json: bool) -> int:
    """Judge an old run's results again and write the same files; the exit status of that run."""

    try:
        folder = RunFolder.open(path)
        finished = finish(folder)
    except RunFolderError as error:
        raise UsageError(str(error)) from None
    except NoRunRecordError as error:
        raise UsageError(f"{path}/results.jsonl can't be judged: {error}") from None
    except OSError as error:
        raise UsageError(f"cannot write to {path}: {error.strerror}") from None
    show(finished, folder, as_json=as_json)
    return finished.status
