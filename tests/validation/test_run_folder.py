"""The run folder: what is written survives, and what can't be written is told before hosts are contacted."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from validation.model import ReachRecord, StageRecord
from validation.run_folder import RunFolder, RunFolderError

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
REACH = ReachRecord(src="n1", dst="n2", port=40_000, ok=True)


def test_records_come_back_as_written(tmp_path: Path) -> None:
    """Each record is a line on disk at once, and reading gives the same records."""
    folder = RunFolder.create(tmp_path, "lab", START)
    done = StageRecord(stage="node", status="done", seconds=1.5)
    folder.append(REACH)
    assert folder.results.read_text(encoding="utf-8").count("\n") == 1
    folder.append(done)
    assert folder.records() == [REACH, done]
    assert folder.path == tmp_path / "lab" / "2026-01-02T03-04-05Z"


def test_a_half_written_last_line_is_dropped(tmp_path: Path) -> None:
    """A run that was killed while writing can be judged again by what came before."""
    folder = RunFolder.create(tmp_path, "lab", START)
    folder.append(REACH)
    with folder.results.open("a", encoding="utf-8") as file:
        file.write('{"kind": "rea')
    assert folder.records() == [REACH]


def test_a_broken_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    """Results that somebody damaged are not judged as if they were whole."""
    folder = RunFolder.create(tmp_path, "lab", START)
    folder.results.write_text('{"kind": "nonsense"}\n' + REACH.model_dump_json() + "\n", encoding="utf-8")
    with pytest.raises(RunFolderError, match="line 1"):
        folder.records()


def test_a_byte_that_is_no_text_is_an_error_too(tmp_path: Path) -> None:
    """A damaged disk gives the line and the remedy, not a traceback."""
    folder = RunFolder.create(tmp_path, "lab", START)
    folder.append(REACH)
    folder.results.write_bytes(folder.results.read_bytes() + b"\xff\xfe\n")
    with pytest.raises(RunFolderError, match=r"line 2 is no record .*restore the file"):
        folder.records()


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\r", "\x0c"])
def test_no_letter_of_a_node_breaks_a_line(end: str, tmp_path: Path) -> None:
    """What a node said may hold any letter, those that Python's texts take for the end of a line, too."""
    folder = RunFolder.create(tmp_path, "lab", START)
    said = StageRecord(stage="node", status="error", reason=f"one{end}two", seconds=1)
    folder.append(said)
    assert folder.records() == [said]


def test_a_disk_that_fills_up_in_the_middle_is_one_sentence(tmp_path: Path) -> None:
    """What can't be written any more names the file and the remedy."""
    folder = RunFolder.create(tmp_path, "lab", START)
    folder.results.unlink()
    folder.results.symlink_to("/dev/full")
    with pytest.raises(RunFolderError, match=r"results\.jsonl: No space left on device; .*--out"):
        folder.append(REACH)


def test_two_runs_in_a_second_have_two_folders(tmp_path: Path) -> None:
    """No run writes into another's folder."""
    first, second = RunFolder.create(tmp_path, "lab", START), RunFolder.create(tmp_path, "lab", START)
    assert first.path != second.path


def test_latest_points_to_the_last(tmp_path: Path) -> None:
    """`latest` is a relative link, so that the reports can be moved, and it is replaced in one step."""
    first = RunFolder.create(tmp_path, "lab", START)
    first.point_latest()
    second = RunFolder.create(tmp_path, "lab", START.replace(hour=9))
    second.point_latest()
    link = tmp_path / "lab" / "latest"
    assert str(link.readlink()) == second.path.name
    assert sorted(entry.name for entry in link.parent.iterdir()) == sorted(
        ["latest", first.path.name, second.path.name]
    )


def test_an_unwritable_place_is_one_sentence(tmp_path: Path) -> None:
    """A file where a folder is needed is told with the remedy."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(RunFolderError, match="--out"):
        RunFolder.create(tmp_path / "taken", "lab", START)


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run does not begin where its results would not fit."""
    monkeypatch.setattr("validation.run_folder.LEAST_FREE_BYTES", 2**62)
    with pytest.raises(RunFolderError, match="MiB free"):
        RunFolder.create(tmp_path, "lab", START)


def test_discard_never_loses_a_measurement(tmp_path: Path) -> None:
    """Only a folder without records is removed."""
    empty, used = RunFolder.create(tmp_path, "lab", START), RunFolder.create(tmp_path, "lab", START)
    used.append(REACH)
    empty.discard()
    used.discard()
    assert not empty.path.exists()
    assert used.records() == [REACH]


def test_opening_a_folder_without_results_says_what_to_give(tmp_path: Path) -> None:
    """--rejudge of a wrong folder names an example of a right one."""
    with pytest.raises(RunFolderError, match="reports/CLUSTER/latest"):
        RunFolder.open(tmp_path)
