"""Settings that hold for every test."""

import os
from tempfile import mkdtemp

import torch
from hypothesis import settings

# Tests run side by side: one thread each. It also keeps sums in one order.
torch.set_num_threads(1)

# What runs remember stays with the tests, and nothing comes from the user's own runs.
os.environ["DESCANT_CACHE"] = mkdtemp(prefix="descant-tests-")

# The same examples on every run, and no test that fails because the machine was busy.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci")
