"""Colours can be told apart, by colour-blind readers too, and from the paper."""

from __future__ import annotations

import numpy as np
import pytest

from descant.report.look import DARK, DASHES, LIGHT, styles

# How people without one kind of cone see linear RGB (Machado, Oliveira and Fernandes, 2009, severity 1).
SEEN = {
    "all cones": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])


def linear(colour: str) -> np.ndarray:
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIELAB, in which a distance of 2 is just noticeable."""
    t = XYZ @ rgb.clip(0, 1) / WHITE
    f = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def oklab(rgb: np.ndarray) -> np.ndarray:
    """OKLab, which is truer than CIELAB among blues and purples; from black to white it is 1."""
    cones = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
    axes = [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
    found: np.ndarray = np.array(axes) @ np.cbrt(np.array(cones) @ rgb.clip(0, 1))
    return found


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_no_two_colours_look_alike(palette: tuple[str, ...], seen: str) -> None:
    for space, least in ((lab, 20.0), (oklab, 0.2 if seen == "all cones" else 0.1)):
        points = [space(np.array(SEEN[seen]) @ linear(colour)) for colour in palette]
        assert min(np.linalg.norm(a - b) for i, a in enumerate(points) for b in points[:i]) > least, space


@pytest.mark.parametrize(("palette", "paper"), [(LIGHT, "#FFFFFF"), (DARK, "#15171A")], ids=["light", "dark"])
def test_every_colour_stands_out_from_the_paper(palette: tuple[str, ...], paper: str) -> None:
    for colour in palette:
        low, high = sorted(float(XYZ[1] @ linear(c)) for c in (colour, paper))
        assert (high + 0.05) / (low + 0.05) > 2.5


def test_labels_beyond_the_colours_are_dashed_and_never_drawn_alike() -> None:
    found = styles([f"method {i}" for i in range(len(LIGHT) * len(DASHES))])
    assert len(set(found.values())) == len(found)
    assert len({(style.colour, style.shape) for style in found.values()}) == len(found), "points neither"
