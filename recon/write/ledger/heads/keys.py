"""Ed25519 keys of signed notes (C2SP signed-note), by `cryptography`."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recon.base.errors import ConfigError
from recon.base.requirements import how_to_install

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_ED25519 = b"\x01"
_NAME = re.compile(r"[^\s+]+")


def decoded(text: str) -> bytes:
    """The bytes of a text in base64 (RFC 4648, section 4), which is the only one that stands for them.

    Raises:
        ValueError: it is none: padding is missing, there is another character, or there are bits behind the last byte.
    """
    raw = base64.b64decode(text, validate=True)
    if base64.b64encode(raw).decode() != text:
        raise ValueError("it is not in base64 as RFC 4648 has it")
    return raw


@dataclass(frozen=True)
class PublicKey:
    """Who signs, and the 32 bytes that verify; as text `<name>+<id>+<base64>`, the form that C2SP tools read."""

    name: str
    raw: bytes

    @property
    def id(self) -> bytes:
        """Four bytes that stand before each of its signatures."""
        return hashlib.sha256(self.name.encode() + b"\n" + _ED25519 + self.raw).digest()[:4]

    def __str__(self) -> str:
        return f"{self.name}+{self.id.hex()}+{base64.b64encode(_ED25519 + self.raw).decode()}"

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """The key of a text.

        Raises:
            ConfigError: the text is no key, or its parts do not belong together.
        """
        try:
            name, _, content = text.strip().split("+", 2)
            key = cls(name, decoded(content)[1:])
            # The text of the key itself says the same of kind, length and id.
            right = _NAME.fullmatch(name) and len(key.raw) == 32 and str(key) == text.strip()
        except ValueError:
            right = None
        if not right:
            raise _no_key(text)
        return key

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether the signature of a message is this key's."""
        from cryptography.exceptions import InvalidSignature

        try:
            _public(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True


def _no_key(text: str) -> ConfigError:
    return ConfigError(
        f"{text[:100]!r} is no public key of a signed note (name+id+base64); `recon ledger key` prints the one that "
        "belongs to this project"
    )


@dataclass(frozen=True)
class SigningKey:
    """A private key with the name under which it signs."""

    name: str
    private: Ed25519PrivateKey = field(repr=False)

    @property
    def public(self) -> PublicKey:
        """What verifies its signatures."""
        return PublicKey(self.name, self.private.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """The signature of a message, 64 bytes."""
        return self.private.sign(message)


def signing_key(name: str, text: str, where: str) -> SigningKey:
    """The key of a PEM (PKCS #8), or of 32 bytes in base64.

    Args:
        name: under which it signs.
        text: the key; no part of it is ever in a message.
        where: it comes from, for messages.

    Raises:
        ConfigError: it is no Ed25519 key, or it is encrypted.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise missing_extra() from error
    advice = "make one with `openssl genpkey -algorithm ed25519`"
    try:
        if "-----BEGIN" in text:
            private = load_pem_private_key(text.encode(), password=None)
        else:
            private = Ed25519PrivateKey.from_private_bytes(base64.b64decode(text.strip(), validate=True))
    except TypeError:
        raise ConfigError(f"{where} is an encrypted key, and recon asks for no password; {advice}") from None
    except Exception:  # `cryptography` raises several kinds, whose messages may quote the text
        raise ConfigError(f"{where} is no private key in PEM, nor 32 bytes in base64; {advice}") from None
    if not isinstance(private, Ed25519PrivateKey):
        raise ConfigError(f"{where} is a key of another kind than Ed25519; {advice}")
    return SigningKey(name, private)


def missing_extra() -> ConfigError:
    """What to say where `cryptography` is not installed."""
    return ConfigError(f"signed heads need cryptography, which is not installed; {how_to_install('heads')}")


def _public(raw: bytes) -> Ed25519PublicKey:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as error:
        raise missing_extra() from error
    return Ed25519PublicKey.from_public_bytes(raw)
