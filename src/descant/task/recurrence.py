"""The recurrence of an LSTM layer, of K clients at once, as an operator of torch.

Hochreiter & Schmidhuber (1997), with the forget gate of Gers et al. (2000). With what the inputs add to the gates,
p_t = W x_t + b, which is one product for all t and no part of this operator:

    (i, f, g, o)_t = p_t + U h_{t-1},   c_t = s(f_t) c_{t-1} + s(i_t) tanh(g_t),   h_t = s(o_t) tanh(c_t),

where s(a) = 1 / (1 + exp(-a)). Sequences have shapes [K, T, B, ...]. The gradient is backpropagation through time.
It goes back over the steps for the slopes of p_t. U's gradient, sum_t slope_t h_{t-1}', is one product at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.func import vjp

from descant.task.operators import define

P = ParamSpec("P")
R = TypeVar("R")
_CELL = torch.ops.aten._thnn_fused_lstm_cell  # on a GPU: one kernel for a cell,
_CELL_GRADIENT = torch.ops.aten._thnn_fused_lstm_cell_backward_impl  # and one for its gradient
_CACHE = 2**18  # weights whose clients a CPU takes through all steps together: more would not stay in its cache


def states(added: Tensor, weight: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """All h_t [K, T, B, H] and the last c [K, B, H], from p [K, T, B, 4H], U [K, 4H, H] and the first h and c."""
    hs, last, _, _ = torch.ops.descant.recurrence(added, weight, h, c, False)
    return hs, last


def spelled_out(added: Tensor, weight: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The same by torch's own operations, for gradients of gradients."""
    hs = []
    for step in added.unbind(1):
        i, f, g, o = (step + h @ weight.mT).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        hs.append(h)
    return torch.stack(hs, 1), c


def _of_one_type(steps: Callable[P, R]) -> Callable[P, R]:
    """Steps whose products are of the type of their factors, which torch.autocast would change."""

    @wraps(steps)
    def run(*given: P.args, **named: P.kwargs) -> R:
        with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
            return steps(*given, **named)

    return run


@_of_one_type
def _recurrence(added: Tensor, weight: Tensor, h: Tensor, c: Tensor, keep: bool) -> tuple[Tensor, ...]:
    """All h_t, the last c, and, to `keep` for the gradient, all c_t and all gates [K, T, B, 4H] after s or tanh."""
    if _fuses(added):
        return _forward_fused(added, weight, h, c, keep)
    found = _recurrence_shape(added, weight, h, c, keep)
    for part in _parts(weight, added, weight, h, c, *found):
        _forward(*part)
    return found


@_of_one_type
def _gradient(
    added: Tensor, weight: Tensor, h: Tensor, c: Tensor, slopes: Tensor, last: Tensor, cs: Tensor, gates: Tensor
) -> tuple[Tensor, ...]:
    """The gradients of p and of the first h and c, from the `slopes` of all h_t and that of the `last` c."""
    if _fuses(slopes):
        return _backward_fused(weight, c, slopes, last, cs, gates)
    found = _gradient_shape(added, weight, h, c)
    for part in _parts(weight, weight, c, slopes, last, cs, gates, *found):
        _backward(*part)
    return found


def _fuses(tensor: Tensor) -> bool:
    """Whether torch has a kernel for a whole cell there."""
    return tensor.is_cuda


def _parts(weight: Tensor, *tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Tensors [K, ...] of so few clients that their weights stay in the cache."""
    clients = max(1, _CACHE // weight[0].numel())
    return list(zip(*(torch.split(tensor, clients) for tensor in tensors), strict=True))


def _forward(
    added: Tensor, weight: Tensor, h: Tensor, c: Tensor, hs: Tensor, last: Tensor, cs: Tensor, gates: Tensor
) -> None:
    """Fill in all h_t, the last c and, where there is room for them, all c_t and gates."""
    H, steps = h.shape[-1], added.shape[1]
    if gates.shape[1]:
        kept = list(zip(cs.unbind(1), gates.unbind(1), strict=True))
    else:
        kept = [(torch.empty_like(c), added.new_empty(added[:, 0].shape))] * steps
    for step, new, (cell, a) in zip(added.unbind(1), hs.unbind(1), kept, strict=True):
        torch.baddbmm(step, h, weight.mT, out=a)
        i, f, g, o = a.chunk(4, -1)
        a[..., : 2 * H].sigmoid_()
        g.tanh_()
        o.sigmoid_()
        c = torch.mul(f, c, out=cell).addcmul_(i, g)
        h = torch.mul(o, c.tanh(), out=new)
    last.copy_(c)


def _backward(
    weight: Tensor,
    c: Tensor,
    slopes: Tensor,
    last: Tensor,
    cs: Tensor,
    gates: Tensor,
    of_added: Tensor,
    of_h: Tensor,
    of_c: Tensor,
) -> None:
    """Fill in the gradients of p and of the first h and c."""
    i, f, g, o = gates.chunk(4, -1)
    squashed, before = cs.tanh(), torch.cat([c.unsqueeze(1), cs[:, :-1]], 1)
    of_cell = o * (1 - squashed * squashed)  # d h / d c
    # First d c / d (i, f, g) and d h / d o, of all steps in one go; then, step by step, times the slope of c or h.
    of_i, of_f, of_g, of_o = of_added.chunk(4, -1)
    torch.mul(g, i - i * i, out=of_i)
    torch.mul(before, f - f * f, out=of_f)
    torch.sub(i, i * g * g, out=of_g)
    torch.mul(squashed, o - o * o, out=of_o)
    by_gate = of_added.view(*of_added.shape[:3], 4, c.shape[-1])
    dh, dc = slopes[:, -1], last
    for t in reversed(range(slopes.shape[1])):
        dc = torch.addcmul(dc, dh, of_cell[:, t])
        by_gate[:, t, :, :3].mul_(dc.unsqueeze(2))
        of_o[:, t].mul_(dh)
        dc = dc * f[:, t]
        step = of_added[:, t]
        dh = torch.baddbmm(slopes[:, t - 1], step, weight) if t else torch.bmm(step, weight)
    of_h.copy_(dh)
    of_c.copy_(dc)


# On a GPU a step is few kernels: a product and a cell; back, a cell's gradient, a copy and a product added to it.


def _forward_fused(added: Tensor, weight: Tensor, h: Tensor, c: Tensor, keep: bool) -> tuple[Tensor, ...]:
    (K, B, H), T = h.shape, added.shape[1]
    weight, c = weight.contiguous(), c.reshape(K * B, H)  # a copy is read faster, T times
    kept = list[tuple[Tensor, ...]]()
    for step in added.transpose(0, 1).reshape(T, K * B, 4 * H):
        h, c, gates = _CELL(step, torch.bmm(h.reshape(K, B, H), weight.mT).flatten(0, 1), c)
        kept.append((h, c, gates) if keep else (h,))
    hs, *others = (_by_client(each, K, B) for each in zip(*kept, strict=True))
    return hs, c.view(K, B, H).clone(), *(others or _nothing(hs, added))


def _backward_fused(
    weight: Tensor, c: Tensor, slopes: Tensor, last: Tensor, cs: Tensor, gates: Tensor
) -> tuple[Tensor, ...]:
    K, T, B, H = slopes.shape
    weight, dh, dc, found = weight.contiguous(), slopes[:, -1], last.reshape(K * B, H), list[Tensor]()
    cells, kept = (each.transpose(0, 1).reshape(T, K * B, each.shape[-1]) for each in (cs, gates))
    for t in reversed(range(T)):
        before = cells[t - 1] if t else c.reshape(K * B, H)
        step, dc, _ = _CELL_GRADIENT(dh.reshape(K * B, H), dc, before, cells[t], kept[t], False)
        found.append(step)
        of_step = step.view(K, B, 4 * H)
        dh = torch.baddbmm(slopes[:, t - 1], of_step, weight) if t else torch.bmm(of_step, weight)
    return _by_client(found[::-1], K, B), dh, dc.view(K, B, H)


def _by_client(steps: Sequence[Tensor], K: int, B: int) -> Tensor:
    """Steps [K * B, ...] as a sequence [K, T, B, ...]."""
    return torch.stack([step.view(K, B, step.shape[-1]) for step in steps], 1)


def _nothing(hs: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
    return hs.new_empty(len(hs), 0, *hs.shape[2:]), added.new_empty(len(hs), 0, *added.shape[2:])


# The shapes of the results, for a compiler.


def _recurrence_shape(added: Tensor, weight: Tensor, h: Tensor, c: Tensor, keep: bool) -> tuple[Tensor, ...]:
    hs = h.new_empty(*added.shape[:3], h.shape[-1])
    kept = (hs.new_empty(hs.shape), added.new_empty(added.shape)) if keep else _nothing(hs, added)
    return hs, c.new_empty(c.shape), *kept


def _gradient_shape(added: Tensor, weight: Tensor, h: Tensor, c: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    return added.new_empty(added.shape), h.new_empty(h.shape), c.new_empty(c.shape)


# The gradients.


def _of_recurrence(
    given: tuple[Any, ...], results: tuple[Tensor, ...], slopes: tuple[Tensor | None, ...]
) -> tuple[Callable[[], Any], ...]:
    added, weight, h, c, _ = given
    hs, last, cs, gates = results
    of_hs, of_last = _filled(slopes[:2], (hs, last))
    of_added, of_h, of_c = torch.ops.descant.recurrence_gradient(added, weight, h, c, of_hs, of_last, cs, gates)

    def of_weight() -> Tensor:
        before = torch.cat([h.unsqueeze(1), hs[:, :-1]], 1)
        gradient: Tensor = of_added.flatten(1, 2).mT @ before.flatten(1, 2)
        return gradient

    return lambda: of_added, of_weight, lambda: of_h, lambda: of_c


def _of_gradient(
    given: tuple[Any, ...], results: tuple[Tensor, ...], slopes: tuple[Tensor | None, ...]
) -> tuple[Callable[[], Any], ...]:
    """Gradients of gradients, by torch's own operations. What was kept follows from the rest: none goes there."""

    def once(added: Tensor, weight: Tensor, h: Tensor, c: Tensor, of_hs: Tensor, of_last: Tensor) -> Any:
        of_added, _, of_h, of_c = vjp(spelled_out, added, weight, h, c)[1]((of_hs, of_last))
        return of_added, of_h, of_c

    of_each = vjp(once, *given[:6])[1](slopes)
    return *(lambda each=each: each for each in of_each), lambda: None, lambda: None


def _filled(slopes: tuple[Tensor | None, ...], results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    pairs = zip(slopes, results, strict=True)
    return tuple(torch.zeros_like(result) if slope is None else slope for slope, result in pairs)


_FIRST = "Tensor added, Tensor weight, Tensor h, Tensor c"
define(
    "recurrence_gradient",
    f"({_FIRST}, Tensor slopes, Tensor last, Tensor cs, Tensor gates) -> (Tensor, Tensor, Tensor)",
    tensors=8,
    compute=_gradient,
    shape=_gradient_shape,
    gradients=_of_gradient,
)
define(
    "recurrence",
    f"({_FIRST}, bool keep) -> (Tensor, Tensor, Tensor, Tensor)",
    tensors=4,
    compute=_recurrence,
    shape=_recurrence_shape,
    gradients=_of_recurrence,
    keeps=True,
    aside=2,
)
