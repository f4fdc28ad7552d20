"""Figures for TensorBoard."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from descant.callbacks.logs import Log, needed


@dataclass(kw_only=True)
class TensorBoard(Log):
    """Writes a run's figures for TensorBoard, into a folder of its own below `folder`, named by label and seed.

    Needs `pip install 'descant[tensorboard]'`; `tensorboard --logdir FOLDER` shows them.
    """

    folder: str | Path = "runs/tensorboard"

    def open(self, name: str, settings: dict[str, Any]) -> None:
        place = Path(self.folder) / name.replace("/", "-")
        self._writer = needed("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(place))
        lines = [f"| {_cell(key)} | {_cell(value)} |" for key, value in settings.items()]
        self._writer.add_text("settings", "\n".join(["| setting | value |", "| --- | --- |", *lines]), 0)

    def log(self, figures: dict[str, float], round: int) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name.replace(".", "/", 1), value, round)  # a section a model

    def close(self, failed: bool) -> None:
        self._writer.close()


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
