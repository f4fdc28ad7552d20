"""The pixels of pictures, by the library Pillow."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from descant.data.errors import DataError
from descant.data.extra import need

ENDINGS = (".jpeg", ".jpg", ".png")


def decode(
    stream: BinaryIO | Path, file: Path, *, grey: bool, size: int | None, crop: bool = True
) -> npt.NDArray[np.uint8]:
    """The pixels of one picture, [C, H, W]; scaled to a `size`, its middle square or, without `crop`, all of it."""
    image = need("PIL.Image", "Pillow")
    try:
        with image.open(stream) as opened:
            if opened.mode == "F" or opened.mode.startswith("I"):  # Pillow would cut them off at 255
                raise DataError("its pixels have more than 8 bits: convert it to 8 bits a pixel first", file=file)
            picture: Any = opened.convert("L" if grey else "RGB")
    except DataError:
        raise
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        problem = f"it is not a picture that can be read: save it again, or take it away ({error})"
        raise DataError(problem, file=file) from error
    if size is not None and crop:
        side = min(picture.size)
        left, top = (picture.width - side) // 2, (picture.height - side) // 2
        picture = picture.crop((left, top, left + side, top + side))
    if size is not None:
        picture = picture.resize((size, size), image.Resampling.BILINEAR)
    pixels: npt.NDArray[np.uint8] = np.asarray(picture)
    return pixels[None] if grey else pixels.transpose(2, 0, 1)


def stacked(pictures: list[npt.NDArray[np.uint8]]) -> Tensor:
    """Pictures of one shape as one tensor, [M, C, H, W]."""
    return torch.from_numpy(np.stack(pictures))
