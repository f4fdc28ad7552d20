"""The probe: what a module can do, found out once."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from descant.errors import SettingError, TaskError
from descant.execution import Loop, Mode, Vmap, choose
from descant.task import Batch, Task

Helper = Callable[..., Any]


class Attentive(nn.Module):
    """A transformer's encoder layer over token embeddings, without dropout."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.score = nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.score(self.layer(self.embed(tokens)).mean(1))
        return scores


class Centred(nn.Module):
    """Subtracts the batch's mean while it trains: BatchNorm of a user's own."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs - inputs.mean(0) if self.training else inputs


class AlwaysCentred(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs - inputs.mean(0)


class Choosy(nn.Module):
    """Control flow that depends on the data, which vmap cannot trace."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.score(inputs)
        return scores if float(scores.detach().sum()) < 1e9 else -scores


def vectors(n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 4), torch.arange(n) % 3


def chosen(model: nn.Module, n: int = 3) -> Vmap:
    execution, why = choose(Task(model), *vectors(n))
    assert isinstance(execution, Vmap)
    assert why == "vectorises"
    return execution


def test_what_vectorises_runs_under_vmap_and_the_loop_when_asked_for() -> None:
    task = Task(nn.Linear(4, 3))
    assert isinstance(choose(task, *vectors(3), mode="vmap")[0], Vmap)
    assert isinstance(choose(task, *vectors(3), mode="loop")[0], Loop)
    assert choose(task, *vectors(3), mode="loop")[1] == "asked for"


def test_data_dependent_control_flow_takes_the_loop() -> None:
    execution, why = choose(Task(Choosy()), *vectors(3))
    assert isinstance(execution, Loop) and "vmap" in why


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(SettingError, match=r"mode = 'fast': it must be one of auto, .*vmap, loop"):
        choose(Task(nn.Linear(4, 3)), *vectors(3), mode="fast")  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(
    ("layer", "mixes"),
    [
        (nn.BatchNorm1d(4), True),
        (nn.LayerNorm(4), False),
        (nn.Dropout(0.5), False),
        (Centred(), True),
    ],
    ids=["BatchNorm", "LayerNorm", "Dropout", "of one's own"],
)
def test_layers_that_compute_over_the_batch_are_found(layer: nn.Module, mixes: bool, n: int) -> None:
    torch.manual_seed(0)
    assert chosen(nn.Sequential(nn.Linear(4, 4), layer, nn.Linear(4, 3)), n).mixes is mixes


def test_batchnorm_is_found_where_the_examples_are_too_alike_to_tell() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(32, 3))
    execution, _ = choose(Task(model), torch.zeros(3, 1, 6, 6), torch.arange(3))
    assert isinstance(execution, Vmap) and execution.mixes


def test_running_statistics_of_single_images_are_of_the_batch_too() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.InstanceNorm2d(2, track_running_stats=True), nn.Flatten(), nn.Linear(32, 3)
    )
    execution, _ = choose(Task(model), torch.randn(3, 1, 6, 6), torch.arange(3))
    assert isinstance(execution, Vmap) and execution.mixes


def test_a_layer_of_ones_own_that_computes_over_the_batch_gets_unpadded_batches(
    padded: Helper, plain: Helper, grads: Helper
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), Centred(), nn.Linear(4, 3))
    task = Task(model)
    clients = [vectors(n) for n in (8, 5)]
    x = task.start().repeat(2, 1)
    execution, _ = choose(task, *clients[0])
    gradients, _ = grads(execution, x, padded(clients, pad=3.0))
    for k, examples in enumerate(clients):
        torch.testing.assert_close(gradients[k], plain(model, x[k], examples)[0])


@pytest.mark.parametrize("layer", [AlwaysCentred(), nn.BatchNorm1d(4, track_running_stats=False)])
def test_a_prediction_that_depends_on_the_rest_of_the_batch_is_refused(layer: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(4, 4), layer, nn.Linear(4, 3))
    with pytest.raises(TaskError, match="prediction for an example changes with the other examples of the batch"):
        choose(Task(model), *vectors(3))


def test_a_recurrent_layer_that_takes_the_examples_for_time_is_refused() -> None:
    class Mistaken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read, self.score = nn.LSTM(2, 4), nn.Linear(4, 3)  # without batch_first

        def forward(self, inputs: Tensor) -> Tensor:
            scores: Tensor = self.score(self.read(inputs)[0][:, -1])
            return scores

    with pytest.raises(TaskError, match="let examples lie on the first axis"):
        choose(Task(Mistaken()), torch.randn(3, 5, 2), torch.arange(3))


def test_attention_trains_and_predicts_in_whichever_mode_it_runs(
    padded: Helper, plain: Helper, grads: Helper, around: Helper
) -> None:
    torch.manual_seed(0)
    task = Task(Attentive().double())
    clients = [(torch.randint(0, 11, (n, 6)), torch.arange(n) % 3) for n in (4, 2)]
    execution, why = choose(task, *clients[0])
    assert execution.mode in ("vmap", "loop") and why
    x, batch = around(task.start(), 2), padded(clients)
    gradients, _ = grads(execution, x, batch)
    outputs = execution.outputs(x, torch.empty(2, 0), batch.inputs)
    for k, examples in enumerate(clients):
        torch.testing.assert_close(gradients[k], plain(task.model, x[k], examples)[0], rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(outputs[k], task.module(x[k])(batch.inputs[k]).detach(), rtol=1e-9, atol=1e-11)


def test_torch_may_not_warn_of_a_hidden_loop_under_vmap(recwarn: pytest.WarningsRecorder) -> None:
    choose(Task(Attentive()), torch.randint(0, 11, (3, 6)), torch.arange(3))
    assert not recwarn.list


def test_the_loop_is_the_check_of_vmap() -> None:
    """A module that computes something else under vmap is not trusted to it."""

    class Suspicious(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.score = nn.Linear(4, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            scores: Tensor = self.score(inputs)
            return scores * 2 if torch._C._functorch.maybe_current_level() else scores

    execution, why = choose(Task(Suspicious()), *vectors(3))
    assert isinstance(execution, Loop)
    assert why == "vmap cannot run this model: its results differ from the plain loop's"


def test_the_probe_changes_neither_the_module_nor_torchs_generator() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    inputs, targets = vectors(3)
    state = torch.get_rng_state()
    choose(Task(model), inputs, targets)
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_a_batch_of_the_probe_is_of_two_different_clients() -> None:
    # A vmap that mixed up clients would pass with two equal ones.
    seen: list[Tensor] = []

    class Spy(Task):
        def objective(self, predict: Callable[[Tensor], Tensor], x: Tensor, batch: Batch) -> Tensor:
            seen.append(x.detach().clone())
            return super().objective(predict, x, batch)

    choose(Spy(nn.Linear(4, 3)), *vectors(3), mode="loop")
    assert len(seen) == 2 and not torch.equal(*seen)


def test_a_choice_that_rounding_decides_does_not_speak_against_vmap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two activations that are equal but for rounding: max-pooling may take either, and the gradient follows."""
    torch.manual_seed(0)
    inputs, targets = vectors(3)
    exact = Vmap.grads

    def other_choice(self: Vmap, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        gradients, statistics = exact(self, x, *rest)
        return (gradients * 1.01 if x.dtype == torch.float32 else gradients), statistics

    monkeypatch.setattr(Vmap, "grads", other_choice)
    assert choose(Task(nn.Linear(4, 3)), inputs.float(), targets)[0].mode == "vmap"
    monkeypatch.setattr(Vmap, "grads", lambda self, *rest: (exact(self, *rest)[0] * 1.01, rest[1]))
    assert choose(Task(nn.Linear(4, 3)), inputs.float(), targets)[0].mode == "loop"


class Counting(Task):
    """A task that counts how often its objective was asked for."""

    asked = 0

    def objective(self, predict: Callable[[Tensor], Tensor], x: Tensor, batch: Batch) -> Tensor:
        self.asked += 1
        return super().objective(predict, x, batch)


@pytest.mark.parametrize("mode", ["auto", "vmap", "loop"])
def test_a_module_is_tried_once_on_examples_of_one_kind(mode: Mode) -> None:
    task = Counting(nn.Linear(4, 3))
    first = choose(task, *vectors(3), mode=mode)
    before = task.asked
    again = choose(task, *vectors(3), mode=mode)
    assert task.asked == before > 0 and (type(again[0]), again[1]) == (type(first[0]), first[1])
    choose(task, *vectors(2), mode=mode)
    assert task.asked > before, "of another shape"


def test_what_was_found_out_is_found_again_for_models_that_mix_or_do_not_vectorise() -> None:
    task = Task(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)))
    choose(task, *vectors(3), mode="loop")  # which finds nothing out about vmap
    assert [getattr(choose(task, *vectors(3))[0], "mixes", None) for _ in range(2)] == [True, True]
    choosy = Task(Choosy())
    assert choose(choosy, *vectors(3))[1] == choose(choosy, *vectors(3))[1] != "vectorises"
    with pytest.raises(TaskError, match="does not run under vmap"):
        choose(choosy, *vectors(3), mode="vmap")


class Attends(nn.Module):
    """Attention between the four numbers of an example, by a kernel that torch has no vectorised one for."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        embedded = x[:, :, None].expand(-1, -1, 4)
        mixed: Tensor = self.layer(embedded).mean(1)
        return mixed[:, :3]


def test_a_layer_that_torch_would_loop_over_is_told_in_our_words_with_the_mode_that_works() -> None:
    task, examples = Task(Attends()), vectors(3)
    said = r"torch cannot compute aten::\w+ for all clients at once, and would take one after the other"
    with pytest.raises(TaskError, match=rf"does not run under vmap \({said}\): use mode='auto' or 'loop'"):
        choose(task, *examples, mode="vmap")
    assert "performance drop" not in choose(task, *examples)[1]
    assert isinstance(choose(task, *examples)[0], Loop)


def test_a_module_that_was_tried_is_refused_other_targets_as_ever() -> None:
    task, (inputs, targets) = Task(nn.Linear(4, 3)), vectors(3)
    choose(task, inputs, targets)
    with pytest.raises(TaskError, match=r"the loss fails on .* targets of shape \(3,\): IndexError: Target"):
        choose(task, inputs, targets + 7)
