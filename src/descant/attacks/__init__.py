"""What malicious clients do: poisoned data, forged messages."""

from descant.attacks.base import Attack, malicious_clients
from descant.attacks.labels import RandomLabels
from descant.attacks.signflip import SignFlip

ATTACKS: dict[str, type[Attack]] = {a.name: a for a in (SignFlip, RandomLabels)}

__all__ = ["ATTACKS", "Attack", "RandomLabels", "SignFlip", "malicious_clients"]
