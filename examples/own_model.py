"""Your own model and your own data, in ten lines:   python examples/own_model.py"""

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer

import descant as dc

x, y = load_breast_cancer(return_X_y=True)  # 569 patients, 30 measurements each
x = (x - x.mean(0)) / x.std(0)
wards = np.array_split(np.argsort(x[:, 0]), 8)  # eight wards, each with tumours of another size
data = dc.FederatedData.from_arrays({f"ward {k}": (x[rows], y[rows]) for k, rows in enumerate(wards)})

torch.manual_seed(0)  # for the parameters that the model starts from
model = torch.nn.Sequential(torch.nn.Linear(30, 16), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 2))
run = dc.simulate(dc.Task(model), data, dc.methods.Ditto(lam=0.1), rounds=20, out="runs/own-model", overwrite=True)

print(f"accuracy, mean over wards: {run.summary()['personal.test_accuracy.mean@chosen_on_valid']:.3f}")
print("ward 0's model on three patients:", run.personal(0)(torch.tensor(x[:3]).float()).argmax(1).tolist())
