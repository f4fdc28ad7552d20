"""Convolutions of K clients on a GPU, in Triton: no patch is ever written, and all sums are in full precision.

For images x [K, B, C, H, W] and filters w [K, O, C, h, w], with stride s, padding p and dilation d:

    convolution         out[k, b, o, y, z] = sum_{c, i, j} w[k, o, c, i, j] x[k, b, c, s y - p + d i, s z - p + d j]
    gradient of images  the same sum, of the outputs' gradients, with filters turned around (`images_gradient`)
    gradient of filters dw[k, o, c, i, j] = sum_{b, y, z} g[k, b, o, y, z] x[k, b, c, s y - p + d i, s z - p + d j]

A thread has a few places (b, y, z) of one client, and all that it adds up there in registers. Neighbouring threads
read neighbouring pixels, and what they read again lies in the cache. The order of every sum follows from the shapes
of the images and filters alone, so a result has the same bits every time.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

_THREADS = 128  # of a program of `_gather`
_SUMS = 64  # that a thread of `_gather` adds up
_PLACES = 8  # of one of them, at most
_HELD = 200  # sums that a thread of `_correlate` adds up: more would not fit its registers
_WARPS = 1  # of a program of `_correlate`: sums over the threads of several would go through shared memory
_LENGTH = 4096  # places that a program of `_correlate` goes through, about


@triton.jit  # type: ignore[untyped-decorator]
def _gather(  # type: ignore[no-untyped-def]
    images,
    filters,  # [K, C h w, padded O]
    out,
    client,  # numbers from one client's images to the next
    places,  # B OH OW
    blocks,  # of places, a client
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    O: tl.constexpr,  # noqa: E741
    OH: tl.constexpr,
    OW: tl.constexpr,
    KH: tl.constexpr,
    KW: tl.constexpr,
    SY: tl.constexpr,  # stride
    SX: tl.constexpr,
    PY: tl.constexpr,  # padding
    PX: tl.constexpr,
    DY: tl.constexpr,  # dilation
    DX: tl.constexpr,
    GY: tl.constexpr,  # the images stand apart by so much, with nothing between
    GX: tl.constexpr,
    INSIDE: tl.constexpr,  # whether no filter reaches over an edge
    OP: tl.constexpr,  # O, padded
    OB: tl.constexpr,  # channels that a program computes
    P: tl.constexpr,  # places
):
    program = tl.program_id(0)
    k = (program // blocks).to(tl.int64)
    place = (program % blocks) * P + tl.arange(0, P)
    near = tl.minimum(place, places - 1)  # those beyond the last read what the last reads
    b = (near // (OH * OW)).to(tl.int64)
    top = near % (OH * OW) // OW * SY - PY
    left = near % OW * SX - PX
    o = tl.program_id(1) * OB + tl.arange(0, OB)
    weights = filters + k * (C * KH * KW * OP) + o
    corner = images + k * client + b * (C * H * W)
    if GY * GX == 1:
        corner += top * W + left
    sums = tl.zeros((OB, P), images.dtype.element_ty)
    for line in range(C * KH):
        c = line // KH
        y = top + line % KH * DY
        if GY * GX == 1:
            row = corner + (c * (H * W) + line % KH * (DY * W))
        else:
            row = corner + (c * (H * W) + y // GY * W)
        for j in tl.static_range(KW):
            if INSIDE:
                pixel = tl.load(row + j * DX)
            else:
                x = left + j * DX
                within = (y >= 0) & (y < H * GY) & (x >= 0) & (x < W * GX)
                if GY * GX == 1:
                    pixel = tl.load(row + j * DX, mask=within, other=0.0)
                else:
                    within = within & (y % GY == 0) & (x % GX == 0)
                    pixel = tl.load(row + x // GX, mask=within, other=0.0)
            weight = tl.load(weights + (line * KW + j) * OP)
            sums += weight[:, None] * pixel[None, :]
    # Neighbouring threads take neighbouring places. The compiler does not see it behind the minimum, so it is told.
    # Where a row ends it does not hold: a multiple of 1 has all numbers read and written one by one.
    at = tl.max_contiguous(tl.multiple_of(b * (O * OH * OW) + near % (OH * OW), 1), P)
    to = out + k * places * O + at
    real = (place < places)[None, :] & (o < O)[:, None]
    tl.store(to[None, :] + (o * (OH * OW))[:, None], sums, mask=real)


@triton.jit  # type: ignore[untyped-decorator]
def _correlate(  # type: ignore[no-untyped-def]
    images,
    slopes,  # [K, B, O, OH, OW] the outputs' gradients
    out,  # [K, slices, O, C, KH, KW]
    client,  # numbers from one client's images to the next
    slope_client,
    places,  # B OH OW
    slices,  # of places, a client
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    O: tl.constexpr,  # noqa: E741
    OH: tl.constexpr,
    OW: tl.constexpr,
    KH: tl.constexpr,
    KW: tl.constexpr,
    SY: tl.constexpr,
    SX: tl.constexpr,
    PY: tl.constexpr,
    PX: tl.constexpr,
    DY: tl.constexpr,
    DX: tl.constexpr,
    INSIDE: tl.constexpr,
    OB: tl.constexpr,  # channels of the outputs that a program takes
    TB: tl.constexpr,  # KH KW, padded
    LENGTH: tl.constexpr,  # places of a slice
    P: tl.constexpr,  # places that it takes at once
):
    T: tl.constexpr = KH * KW
    program = tl.program_id(0)
    c = program % C
    part = (program // C).to(tl.int64)
    begin = (program // C % slices) * LENGTH
    end = tl.minimum(begin + LENGTH, places)
    t = tl.arange(0, TB)
    o = tl.arange(0, OB)
    kept = (t < T)[None, :]  # the compiler drops the sums of which it knows that they are not
    if OB < O:
        o += tl.program_id(1) * OB
    else:
        kept = kept & (o < O)[:, None]
    i = t // KW * DY
    j = t % KW * DX
    image = images + part // slices * client + c * (H * W)
    slope_of = slopes + part // slices * slope_client
    sums = tl.zeros((OB, TB, P), images.dtype.element_ty)
    for done in range(0, LENGTH, P):
        place = begin + done + tl.arange(0, P)
        near = tl.minimum(place, end - 1)
        b = (near // (OH * OW)).to(tl.int64)
        top = near % (OH * OW) // OW * SY - PY
        left = near % OW * SX - PX
        slope_at = tl.max_contiguous(tl.multiple_of(b * (O * OH * OW) + near % (OH * OW), 1), P)
        real = (place < end)[None, :] & (o < O)[:, None]
        slope = tl.load((slope_of + slope_at)[None, :] + (o * (OH * OW))[:, None], mask=real, other=0.0)
        pixel_at = tl.max_contiguous(tl.multiple_of(b * (C * H * W) + top * W + left, 1), P)
        within = (t < T)[:, None]
        if not INSIDE:
            y = top[None, :] + i[:, None]
            x = left[None, :] + j[:, None]
            within = within & (y >= 0) & (y < H) & (x >= 0) & (x < W)
        pixel = tl.load((image + pixel_at)[None, :] + (i * W + j)[:, None], mask=within, other=0.0)
        sums = tl.where(kept[:, :, None], sums + slope[:, None, :] * pixel[None, :, :], 0.0)
    to = out + part * (O * C * T) + (o * (C * T))[:, None] + c * T + t[None, :]
    tl.store(to, tl.sum(sums, 2), mask=(t < T)[None, :] & (o < O)[:, None])


def convolution(
    images: Tensor, filters: Tensor, stride: list[int], padding: list[int], dilation: list[int]
) -> Tensor:
    """The outputs [K, B, O, OH, OW]."""
    size = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(images.shape[3:], filters.shape[3:], stride, padding, dilation, strict=True)
    ]
    return _gathered(images, filters, size, stride, padding, dilation, [1, 1])


def images_gradient(
    slopes: Tensor, filters: Tensor, size: list[int], stride: list[int], padding: list[int], dilation: list[int]
) -> Tensor:
    """The gradient [K, B, C, H, W] of images of a size [H, W], from that of the outputs.

    Pixel y met weight i in output (y + p - d i) / s, where that is a whole number. Counted from the last weight,
    i = h - 1 - i', this is (y - (d (h - 1) - p) + d i') / s: a convolution with turned filters over outputs that
    stand s apart.
    """
    turned = filters.flip(3, 4).transpose(1, 2)
    over = [d * (k - 1) - p for k, p, d in zip(filters.shape[3:], padding, dilation, strict=True)]
    return _gathered(slopes, turned, size, [1, 1], over, dilation, stride)


def filters_gradient(
    images: Tensor, slopes: Tensor, size: list[int], stride: list[int], padding: list[int], dilation: list[int]
) -> Tensor:
    """The gradient [K, O, C, h, w] of filters of a size [h, w], from that of the outputs.

    Every program adds up a slice of the places, and then the slices are added up: nothing depends on who is first.
    """
    images, slopes = _apart(images), _apart(slopes)
    (clients, batch, channels, *extent), (outputs, *places) = images.shape, slopes.shape[2:]
    number, taps = batch * places[0] * places[1], size[0] * size[1]
    slices = triton.cdiv(number, _LENGTH)
    length = triton.cdiv(number, slices)
    parts = images.new_empty(clients, slices, outputs, channels, *size)
    together = 16
    while together > 1 and min(together, outputs) * taps * images.itemsize > 4 * _HELD:
        together //= 2
    together = min(together, triton.next_power_of_2(outputs))
    _correlate[(clients * slices * channels, triton.cdiv(outputs, together))](
        *(images, slopes, parts, images.stride(0), slopes.stride(0), number, slices),
        *(channels, *extent, outputs, *places, *size, *stride, *padding, *dilation),
        INSIDE=max(padding) <= 0,
        OB=together,
        TB=triton.next_power_of_2(taps),
        LENGTH=length,
        P=32 * _WARPS,
        num_warps=_WARPS,
    )
    return parts.sum(1)


def _gathered(
    images: Tensor,
    filters: Tensor,
    size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    gaps: list[int],
) -> Tensor:
    images = _apart(images)
    (clients, batch, channels, *extent), (outputs, _, *window) = images.shape, filters.shape[1:]
    together = min(16, triton.next_power_of_2(outputs))
    padded = triton.cdiv(outputs, together) * together
    weights = functional.pad(filters.flatten(2).transpose(1, 2), (0, padded - outputs)).contiguous()
    out = images.new_empty(clients, batch, outputs, *size)
    number = batch * size[0] * size[1]
    places = _THREADS * min(_PLACES, _SUMS // together)
    places = min(places, max(_THREADS, triton.next_power_of_2(number)))
    blocks = triton.cdiv(number, places)
    _gather[(clients * blocks, padded // together)](
        *(images, weights, out, images.stride(0), number, blocks),
        *(channels, *extent, outputs, *size, *window, *stride, *padding, *dilation, *gaps),
        INSIDE=max(padding) <= 0 and max(gaps) == 1,
        OP=padded,
        OB=together,
        P=places,
        num_warps=_THREADS // 32,
    )
    return out


def _apart(tensor: Tensor) -> Tensor:
    """A tensor [K, ...] in which each client's numbers lie together; all clients may have the same ones."""
    return tensor if tensor[0].is_contiguous() else tensor.contiguous()
