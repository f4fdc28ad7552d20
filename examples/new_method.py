"""A new method in one file, compared with local training:   python examples/new_method.py

A settings file names it by its import path (examples/new_method.yaml).
"""

from dataclasses import dataclass

from descant.methods import Descent


@dataclass(frozen=True, kw_only=True)
class MeanRegularized(Descent):
    """Mean-regularized training: min over v_1, ..., v_N of mean_k f_k(v_k) + lam/2 ||v_k - mean of all v||^2.

    `lam` weighs the tie. Sends v_k; lam = 0 is local training.
    """

    name = "mean-regularized"
    paper = "the worked example of the documentation"
    trains, has_shared, personalizes = ("personal",), True, True
    lam: float = 0.1

    def server_start(self, ctx):
        return {"w": ctx.x0}

    def client_start(self, local):
        return {"v": local.start}

    def broadcast(self, server):
        return {"w": server["w"]}

    def client(self, down, state, local):
        v = local.run(self.step, state["v"], down["w"], work=self.work, role="personal")
        return {"v": v}, {"v": v}  # the message, and the client's new state

    def step(self, v, grad, w):  # v, w [K, d]: K clients at once
        return self.down(v, self.slope(v, grad) + self.lam * (v - w))

    def server(self, server, messages, aggregate):
        return {"w": aggregate({"v": messages["v"]})["v"]}

    def personal(self, down, state, local):
        return state["v"]

    def shared(self, server):
        return server["w"]


if __name__ == "__main__":
    import torch

    import descant as dc

    torch.manual_seed(0)  # for the parameters that the model starts from
    data = dc.data.digits(clients=20, labels=2)
    task = dc.Task(dc.models.linear(data))
    for method in (dc.methods.Local(steps=20), MeanRegularized(lam=0.1, steps=20)):
        figures = dc.simulate(task, data, method, rounds=20, cohort=0.5).summary()
        accuracy = figures["personal.test_accuracy.mean@chosen_on_valid"]
        print(f"{method.name:18} accuracy {accuracy:.3f}, {figures['bytes_up'] / 1000:.0f} kB up")
