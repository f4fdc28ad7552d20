"""The papers' attacks by name, with their strengths: `attacks: lp-proj/sign-flip` in a settings file.

PRESETS is a plain catalog: a name stands for the attacks of its entry, as if they had been listed one by one. Who
attacks is said by `malicious`, as ever; an entry says which shares its paper tries.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

from descant.attacks.base import Attack
from descant.attacks.labels import FlippedLabels, RandomLabels
from descant.attacks.noise import Gaussian, RandomUpdate, SameValue
from descant.attacks.scaling import RandomScale, Replacement
from descant.attacks.signflip import SignFlip


class Preset(NamedTuple):
    """Attacks as a paper carries them out, all at once."""

    attacks: tuple[Attack, ...]
    malicious: tuple[float, ...]  # the shares of clients that attack in the paper
    summary: str


# lp-proj (Lin et al., 2024), section 5.4, with the standard deviations of its code (the text says variance). There
# a client sends a point, w_k in the subspace or, with FedAvg and Ditto, the global model: points are forged.
_LP_PROJ = (0.1, 0.2, 0.5, 0.8)
# FLAME (Zhu et al., 2024), section VI: 'the noise variance is set to 0.1'. Its code has other standard deviations,
# and turns around the model that an attacker received.
_FLAME, _PRINTED = (0.0, 0.2, 0.5, 0.8), sqrt(0.1)
# Ditto (Li et al., 2021), Definition 1 and Table 1. In its code attackers of all levels train on poisoned labels.
_DITTO, _A3 = (0.2, 0.5, 0.8), (0.1, 0.15, 0.2, 0.5)

PRESETS: dict[str, Preset] = {
    "lp-proj/same-value": Preset(
        (SameValue(tau=100.0, on="position"),),
        _LP_PROJ,
        "lp-proj: c times the vector of ones, c ~ N(0, 100^2).",
    ),
    "lp-proj/sign-flip": Preset(
        (SignFlip(tau=10.0, on="position"),),
        _LP_PROJ,
        "lp-proj: -|c| times what an attacker would send, c ~ N(0, 10^2).",
    ),
    "lp-proj/gaussian": Preset(
        (Gaussian(tau=100.0, on="position"),),
        _LP_PROJ,
        "lp-proj: every number drawn from N(0, 100^2).",
    ),
    "lp-proj/poison": Preset(
        (RandomLabels(), RandomScale(tau=20.0, on="position")),
        (0.02, 0.05, 0.1, 0.2),
        "lp-proj: random labels, drawn once, and c times what an attacker would send, c ~ N(0, 20^2).",
    ),
    "flame/labels": Preset(
        (RandomLabels(),),
        _FLAME,
        "FLAME: random labels, drawn once (its code draws them anew whenever it reads one).",
    ),
    "flame/same-value": Preset(
        (SameValue(tau=_PRINTED, on="position"),),
        _FLAME,
        "FLAME as printed: c times the vector of ones, c ~ N(0, 0.1).",
    ),
    "flame/sign-flip": Preset(
        (SignFlip(tau=_PRINTED, on="position"),),
        _FLAME,
        "FLAME as printed: -|c| times what an attacker would send, c ~ N(0, 0.1).",
    ),
    "flame/gaussian": Preset(
        (Gaussian(tau=_PRINTED, on="position"),),
        _FLAME,
        "FLAME as printed: every number drawn from N(0, 0.1).",
    ),
    "flame-code/same-value": Preset(
        (SameValue(tau=0.01, on="position"),),
        _FLAME,
        "FLAME as coded: c times the vector of ones, c ~ N(0, 0.01^2).",
    ),
    "flame-code/sign-flip": Preset(
        (SignFlip(tau=1.0, of="received", on="position"),),
        _FLAME,
        "FLAME as coded: -|c| times the model that an attacker received, c ~ N(0, 1).",
    ),
    "flame-code/gaussian": Preset(
        (Gaussian(tau=1.0, on="position"),),
        _FLAME,
        "FLAME as coded: every number drawn from N(0, 1).",
    ),
    "ditto/A1": Preset((RandomLabels(),), _DITTO, "Ditto's A1: random labels, drawn once."),
    "ditto/A2": Preset(
        (RandomLabels(), RandomUpdate()),
        _DITTO,
        "Ditto's A2: random labels, and random updates as large as the own.",
    ),
    "ditto/A3": Preset(
        (RandomLabels(), Replacement()),
        _A3,
        "Ditto's A3: random labels, and updates times the size of the cohort.",
    ),
    "ditto/A1-binary": Preset((FlippedLabels(),), _DITTO, "Ditto's A1 for two classes: flipped labels."),
    "ditto/A2-binary": Preset(
        (FlippedLabels(), RandomUpdate()),
        _DITTO,
        "Ditto's A2 for two classes: flipped labels, and random updates as large as the own.",
    ),
    "ditto/A3-binary": Preset(
        (FlippedLabels(), Replacement()),
        _A3,
        "Ditto's A3 for two classes: flipped labels, and updates times the size of the cohort.",
    ),
}
