"""Reading results with polars:   python examples/read_results.py [FOLDER OF A RUN]...

Without folders, three small runs are made first. The tables are plain Parquet files: nothing of descant is needed
to read them.
"""

import json
import sys
from pathlib import Path

import polars as pl


def small_runs() -> list[Path]:
    import torch

    import descant as dc

    torch.manual_seed(0)  # for the parameters that the model starts from
    data = dc.data.digits(clients=20, labels=2)
    task = dc.Task(dc.models.linear(data))
    fedavg = dc.methods.FedAvg(steps=10)
    methods = {
        "fedavg": dc.methods.FedAvg(steps=20),
        "ditto": dc.methods.Ditto(lam=0.1, lr=0.1, steps=10, solver=fedavg),
        "lp-proj": dc.methods.LpProj(lam=0.1, dim=50),
    }
    folders = {name: Path("runs/read-results") / name for name in methods}
    for name, method in methods.items():
        dc.simulate(task, data, method, rounds=15, cohort=0.5, out=folders[name], overwrite=True)
    return list(folders.values())


def method_of(folder: Path) -> str:
    return json.loads((folder / "run.json").read_text())["config"]["method"]["name"]


def worst_clients(folder: Path, number: int = 3) -> pl.DataFrame:
    """Who is served worst in the end, and what do they hold?"""
    clients = pl.read_parquet(folder / "clients.parquet")
    last = clients.filter(pl.col("round") == pl.col("round").max(), model="personal")
    held = pl.read_parquet(folder / "federation.parquet").select("client", "name", "train", "labels")
    worst = last.join(held, on="client").sort("test_accuracy", "client").head(number)
    held_labels = pl.col("labels").list.eval(pl.element().gt(0).arg_true()).alias("labels held")
    return worst.select("name", "test_accuracy", pl.col("train").alias("training examples"), held_labels)


def accuracy_by_bytes(folder: Path) -> pl.DataFrame:
    """How good are the clients' models for the bytes that have been sent so far?"""
    clients = pl.read_parquet(folder / "clients.parquet").filter(model="personal")
    good = clients.group_by("round").agg(pl.col("test_accuracy").mean().alias("accuracy"))
    rounds = pl.read_parquet(folder / "rounds.parquet")
    sent = rounds.select("round", (pl.col("bytes_up") + pl.col("bytes_down")).cum_sum().alias("bytes"))
    return sent.join(good, on="round").sort("round")


def personal_against_shared(folder: Path) -> pl.DataFrame | None:
    """Which clients does a model of their own help, and how much? None where there is no other model."""
    clients = pl.read_parquet(folder / "clients.parquet")
    if clients["model"].n_unique() < 2:
        return None
    last = clients.filter(pl.col("round") == pl.col("round").max())
    side_by_side = last.pivot("model", index="client", values="test_accuracy")
    return side_by_side.with_columns(gain=pl.col("personal") - pl.col("shared")).sort("gain", "client")


if __name__ == "__main__":
    pl.Config.set_tbl_hide_dataframe_shape(True).set_tbl_hide_column_data_types(True)
    folders = [Path(folder) for folder in sys.argv[1:]] or small_runs()
    for folder in folders:
        print(f"\n{method_of(folder)}: the worst-served clients", worst_clients(folder), sep="\n")
        if (gains := personal_against_shared(folder)) is not None:
            helped = gains.filter(pl.col("gain") > 0).height
            print(f"its own model is better than the shared one for {helped} of {gains.height} clients")
    for goal in (0.9, 0.95):
        for folder in folders:
            reached = accuracy_by_bytes(folder).filter(pl.col("accuracy") >= goal)
            cost = f"{reached['bytes'][0] / 1000:.0f} kB" if reached.height else "not reached"
            print(f"mean accuracy {goal}: {method_of(folder)} {cost}")
