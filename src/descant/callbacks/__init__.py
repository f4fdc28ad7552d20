"""What looks on at a run while it goes on: early stopping, and logs of other tools."""

from descant.callbacks.early import EarlyStopping
from descant.callbacks.mlflow import MLflow
from descant.callbacks.tensorboard import TensorBoard
from descant.callbacks.wandb import WandB
from descant.experiment.callback import Callback, Stop

__all__ = ["Callback", "EarlyStopping", "MLflow", "Stop", "TensorBoard", "WandB"]
