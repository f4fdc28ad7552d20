"""The way of a message through a codec."""

from __future__ import annotations

from dataclasses import replace

from descant.codecs import Codec
from descant.mail import Mail


def blank(mail: Mail) -> Mail:
    """The mail as the server expects it."""
    return replace(mail, leaves=mail.form.blank(len(mail.clients)))


def returned(codec: Codec, mail: Mail) -> Mail:
    """The mail as it arrives."""
    payloads = codec.encode(mail.ctx, codec.memory(mail.updates()), mail)[1]
    assert len(payloads) == len(mail.clients)
    return codec.decode(mail.ctx, codec.copies(mail.updates()), payloads, blank(mail))[1]
