"""The recurrence of an LSTM layer, of K clients at once, as an operator of torch.

Hochreiter & Schmidhuber (1997), with the forget gate of Gers et al. (2000). With what the inputs add to the gates,
p_t = W x_t + b, which is one product for all t and no part of this operator:

    (i, f, g, o)_t = p_t + U h_{t-1},   c_t = s(f_t) c_{t-1} + s(i_t) tanh(g_t),   h_t = s(o_t) tanh(c_t),

where s(a) = 1 / (1 + exp(-a)). Sequences have shapes [K, B, T, ...]. The gradient is backpropagation through time.
It goes back over the steps for the slopes of p_t. U's gradient, sum_t slope_t h_{t-1}', is one product at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import vjp

from descant.task.operators import define

_CELL = torch.ops.aten._thnn_fused_lstm_cell  # on a GPU: one kernel for a cell,
_CELL_GRADIENT = torch.ops.aten._thnn_fused_lstm_cell_backward_impl  # and one for its gradient
_CACHE = 2**18  # weights whose clients a CPU takes through all steps together: more would not stay in its cache


def states(added: Tensor, weight: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """All h_t [K, B, T, H] and the last c [K, B, H], from p [K, B, T, 4H], U [K, 4H, H] and the first h and c."""
    hs, last, _, _ = torch.ops.descant.recurrence(added, weight, h, c, False)
    return hs, last


def spelled_out(added: Tensor, weight: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The same by torch's own operations, for gradients of gradients."""
    hs = []
    for step in added.unbind(2):
        i, f, g, o = (step + h @ weight.mT).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        hs.append(h)
    return torch.stack(hs, 2), c


def _recurrence(added: Tensor, weight: Tensor, h: Tensor, c: Tensor, keep: bool) -> tuple[Tensor, ...]:
    """All h_t, the last c, and, to `keep` for the gradient, all c_t and all gates [K, B, T, 4H] after s or tanh."""
    if added.is_cuda:
        return _forward_fused(keep, added, weight, h, c)
    found = [_forward(keep, *part) for part in _parts(weight, added, weight, h, c)]
    return _joined(found)


def _gradient(
    added: Tensor, weight: Tensor, h: Tensor, c: Tensor, slopes: Tensor, last: Tensor, cs: Tensor, gates: Tensor
) -> tuple[Tensor, ...]:
    """The gradients of p and of the first h and c, from the `slopes` of all h_t and that of the `last` c."""
    if slopes.is_cuda:
        return _backward_fused(weight, c, slopes, last, cs, gates)
    return _joined([_backward(*part) for part in _parts(weight, weight, c, slopes, last, cs, gates)])


def _parts(weight: Tensor, *tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Tensors [K, ...] of so few clients that their weights stay in the cache."""
    clients = max(1, _CACHE // weight[0].numel())
    return list(zip(*(torch.split(tensor, clients) for tensor in tensors), strict=True))


def _joined(found: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return found[0] if len(found) == 1 else tuple(map(torch.cat, zip(*found, strict=True)))


def _forward(keep: bool, added: Tensor, weight: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    H = h.shape[-1]
    hs = h.new_empty(*added.shape[:3], H)
    cs, gates = (hs.new_empty(hs.shape), torch.empty_like(added)) if keep else _nothing(hs, added)
    for t in range(added.shape[2]):
        a = torch.baddbmm(added[:, :, t], h, weight.mT)
        a[..., : 2 * H].sigmoid_()
        a[..., 2 * H : 3 * H].tanh_()
        a[..., 3 * H :].sigmoid_()
        i, f, g, o = a.chunk(4, -1)
        c = torch.addcmul(f * c, i, g)
        h = o * c.tanh()
        hs[:, :, t] = h
        if keep:
            cs[:, :, t], gates[:, :, t] = c, a
    return hs, c.clone(), cs, gates


def _backward(
    weight: Tensor, c: Tensor, slopes: Tensor, last: Tensor, cs: Tensor, gates: Tensor
) -> tuple[Tensor, ...]:
    # What does not depend on the slopes is computed for all steps in one go.
    i, f, g, o = gates.chunk(4, -1)
    squashed, before = cs.tanh(), torch.cat([c.unsqueeze(2), cs[:, :, :-1]], 2)
    of_cell = o * (1 - squashed * squashed)  # d h / d c
    of_c = torch.stack([g * i * (1 - i), before * f * (1 - f), i * (1 - g * g)], 3)  # d c / d (i, f, g)
    of_h = squashed * o * (1 - o)  # d h / d o
    found, dc = gates.new_empty(*slopes.shape[:3], 4, slopes.shape[-1]), last
    dh = torch.zeros_like(last)
    for t in reversed(range(slopes.shape[2])):
        dh = dh + slopes[:, :, t]
        dc = torch.addcmul(dc, dh, of_cell[:, :, t])
        step = found[:, :, t]
        torch.mul(dc.unsqueeze(2), of_c[:, :, t], out=step[:, :, :3])
        torch.mul(dh, of_h[:, :, t], out=step[:, :, 3])
        dh = torch.bmm(step.flatten(2), weight)
        dc = dc * f[:, :, t]
    return found.flatten(3), dh, dc


# On a GPU a step is few kernels: a product and a cell; back, a cell's gradient, a copy and a product added to it.


def _forward_fused(keep: bool, added: Tensor, weight: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    K, B, T, _ = added.shape
    rows, weight = added.flatten(0, 1), weight.contiguous()  # [K B, T, 4H]; a copy is read faster, T times
    c, kept = c.reshape(K * B, -1), list[tuple[Tensor, ...]]()
    for t in range(T):
        recurrent = torch.bmm(h.reshape(K, B, -1), weight.mT).flatten(0, 1)
        h, c, gates = _CELL(rows[:, t], recurrent, c)
        kept.append((h, c, gates) if keep else (h,))
    hs, *others = (torch.stack(each, 1).view(K, B, T, -1) for each in zip(*kept, strict=True))
    return hs, c.view(K, B, -1).clone(), *(others or _nothing(hs, added))


def _backward_fused(
    weight: Tensor, c: Tensor, slopes: Tensor, last: Tensor, cs: Tensor, gates: Tensor
) -> tuple[Tensor, ...]:
    K, B, T, _ = slopes.shape
    before, dc, weight = c.reshape(K * B, -1), last.reshape(K * B, -1), weight.contiguous()
    cells, kept, found = cs.flatten(0, 1), gates.flatten(0, 1), list[Tensor]()
    dh = slopes[:, :, -1]
    for t in reversed(range(T)):
        previous = cells[:, t - 1] if t else before
        step, dc, _ = _CELL_GRADIENT(dh.reshape(K * B, -1), dc, previous, cells[:, t], kept[:, t], False)
        found.append(step)
        of_step = step.view(K, B, -1)
        dh = torch.baddbmm(slopes[:, :, t - 1], of_step, weight) if t else torch.bmm(of_step, weight)
    return torch.stack(found[::-1], 1).view(K, B, T, -1), dh, dc.view(K, B, -1)


def _nothing(hs: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
    return hs.new_empty(*hs.shape[:2], 0, hs.shape[3]), added.new_empty(*added.shape[:2], 0, added.shape[3])


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
        before = torch.cat([h.unsqueeze(2), hs[:, :, :-1]], 2)
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
