"""Which models a run keeps, in memory and in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import descant as dc
from descant.errors import NoModelError
from descant.experiment import keeping
from descant.experiment.verify import verify
from tests.experiment.kept import ALL, CLIENTS, SOME, accuracy, counted, shown
from tests.experiment.small import DATA, Net, begin, result, resume, task


@pytest.mark.slow
def test_memory_and_disk_keep_the_same_bits(tmp_path: Path) -> None:
    for store in ("memory", "disk"):
        begin(tmp_path / store, store=store, **SOME)
    files = {store: sorted((tmp_path / store / "models").iterdir()) for store in ("memory", "disk")}
    assert [file.name for file in files["memory"]] == [file.name for file in files["disk"]] and files["disk"]
    for one, other in zip(*files.values(), strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


@pytest.mark.few(1)
@pytest.mark.parametrize("out", [True, False])
def test_fewer_models_can_be_kept(tmp_path: Path, out: bool) -> None:
    for keep in ("last", "none"):
        folder = tmp_path / keep
        where: dict[str, Any] = {"out": folder} if out else {}
        live = dc.simulate(task(), DATA, "ditto", rounds=6, keep_models=keep, evaluate=ALL, **where)  # type: ignore[arg-type]
        assert live.summary()["personal.round@chosen_on_valid"] < 6
        with pytest.raises(NoModelError, match=f"keep_models='{keep}'"):
            live.personal(0)
        for k in CLIENTS:  # the simulation can still make them
            assert accuracy(live.personal(k, round="last"), k) == shown(live, "personal", "last", k)
        if not out:
            continue
        run = dc.load(folder)
        assert (folder / "models").exists() == (keep == "last")
        if keep == "last":
            assert accuracy(run.selected(3, round="last", model=Net()), 3) == shown(live, "selected", "last", 3)
        else:
            with pytest.raises(NoModelError, match=r"no shared models of the last round .* keep_models='none'"):
                run.shared(round="last", model=Net())


def test_what_was_not_evaluated_was_not_kept(tmp_path: Path) -> None:
    evaluation = dc.Evaluation(models=("personal",))
    live = dc.simulate(task(), DATA, "ditto", rounds=2, evaluate=evaluation, out=tmp_path)
    assert isinstance(live.shared(), Net)
    for run, kind in ((dc.load(tmp_path), "shared"), (live, "selected")):
        with pytest.raises(NoModelError, match=f"did not evaluate them .*{kind}"):
            run.models.module(kind, 0)


@pytest.mark.slow
def test_models_too_large_for_memory_go_into_files_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(tmp_path / "memory", store="memory", **SOME)
    monkeypatch.setattr(keeping, "_memory", lambda: 0)
    begin(tmp_path / "file", store="memory", chunk=5, **SOME)
    assert result(tmp_path / "file").split('"kept"')[1] == result(tmp_path / "memory").split('"kept"')[1]
    with pytest.warns(UserWarning, match="too much for memory: they are not kept; give the run a folder"):
        run = dc.simulate(task(), DATA, "ditto", rounds=6)
    assert run.summary()["personal.round@chosen_on_valid"] != 6
    with pytest.raises(NoModelError, match="too large for its memory"):
        run.personal(0)
    assert isinstance(run.personal(0, round="last"), Net)


@pytest.mark.few(1)
@pytest.mark.parametrize("store", ["memory", "disk"])
@pytest.mark.parametrize("stop", [1, 5, 6, 8])
def test_an_interrupted_run_ends_with_the_same_models(tmp_path: Path, store: str, stop: int) -> None:
    begin(tmp_path / "unbroken", store=store, **SOME)
    begin(tmp_path / "broken", stop=stop, store=store, **SOME | {"commit": None if store == "disk" else 2})
    assert not verify(tmp_path / "broken")
    resume(tmp_path / "broken")
    names = [sorted(f.name for f in (tmp_path / which / "models").iterdir()) for which in ("broken", "unbroken")]
    assert names[0] == names[1]
    for name in names[0]:
        assert (tmp_path / "broken/models" / name).read_bytes() == (
            tmp_path / "unbroken/models" / name
        ).read_bytes()


def test_only_the_best_so_far_lies_in_the_folder(tmp_path: Path) -> None:
    seen: set[int] = set()

    def look(record: Any) -> None:
        files = sorted(file.name for file in tmp_path.glob("models/personal-*"))
        assert len(files) <= 1
        seen.update(int(name.split("-")[1].split(".")[0]) for name in files)

    counted([0.0, 0.5, 0.5, 0.2, 0.9, 0.1, 0.9], True, out=tmp_path, commit=1, progress=look)
    assert seen == {0, 1, 4}, "written when the best improved, and then alone"
    assert sorted(file.name for file in tmp_path.glob("models/*")) == [
        f"{kind}-{round:08d}.safetensors" for kind in ("personal", "shared") for round in (4, 6)
    ]
