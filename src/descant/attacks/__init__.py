"""What malicious clients do: poisoned data, forged messages."""

from descant.attacks.backdoor import Backdoor
from descant.attacks.base import Attack, Defence, Seen, Sight, malicious_clients
from descant.attacks.forging import Forging
from descant.attacks.knowing import ALIE, InnerProduct, Knowing, MinMax, MinSum
from descant.attacks.labels import FlippedLabels, RandomLabels
from descant.attacks.mimic import Mimic
from descant.attacks.noise import Gaussian, RandomUpdate, SameValue
from descant.attacks.optimized import OptimizedBackdoor
from descant.attacks.presets import PRESETS, Preset
from descant.attacks.scaling import RandomScale, Replacement
from descant.attacks.signflip import SignFlip

ATTACKS: dict[str, type[Attack]] = {
    a.name: a
    for a in (
        SameValue,
        SignFlip,
        Gaussian,
        Replacement,
        RandomUpdate,
        RandomScale,
        RandomLabels,
        FlippedLabels,
        ALIE,
        InnerProduct,
        MinMax,
        MinSum,
        Mimic,
        Backdoor,
        OptimizedBackdoor,
    )
}

__all__ = [
    "ALIE",
    "ATTACKS",
    "PRESETS",
    "Attack",
    "Backdoor",
    "Defence",
    "FlippedLabels",
    "Forging",
    "Gaussian",
    "InnerProduct",
    "Knowing",
    "Mimic",
    "MinMax",
    "MinSum",
    "OptimizedBackdoor",
    "Preset",
    "RandomLabels",
    "RandomScale",
    "RandomUpdate",
    "Replacement",
    "SameValue",
    "Seen",
    "Sight",
    "SignFlip",
    "malicious_clients",
]
