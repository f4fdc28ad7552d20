"""A table or a picture is replaced where descant's own list knows its contents, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from descant.errors import SettingError
from descant.written import check_names, write_ours

TABLE = "method,attack,fraction,test_accuracy\nfedavg,none,0.0,0.9\n"


def test_what_was_written_is_replaced(tmp_path: Path) -> None:
    for text in (TABLE, "another"):
        check_names(tmp_path, ["robustness.csv"])
        write_ours(tmp_path, {"robustness.csv": text.encode()})
    assert (tmp_path / "robustness.csv").read_text() == "another"


def test_a_copy_of_a_table_in_a_folder_without_the_list_is_the_users(tmp_path: Path) -> None:
    (tmp_path / "robustness.csv").write_text(TABLE)  # as ours begins, and maybe with a note of the user's below
    with pytest.raises(SettingError, match=r"robustness\.csv' is there already, and descant did not write it"):
        check_names(tmp_path, ["robustness.csv"])


@pytest.mark.parametrize("text", ["my own list", "a  b", f"{'0' * 64}  table.csv\nand a note"])
def test_a_list_of_the_users_is_kept(tmp_path: Path, text: str) -> None:
    (tmp_path / ".descant-report").write_text(text)
    for call in (lambda: check_names(tmp_path, ["t.csv"]), lambda: write_ours(tmp_path, {"t.csv": b"t"})):
        with pytest.raises(
            SettingError, match=r"\.descant-report' is to list .* choose another folder, or move it"
        ):
            call()
    assert (tmp_path / ".descant-report").read_text() == text and not (tmp_path / "t.csv").exists()
