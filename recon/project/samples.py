"""What samples of failing rows may show, and the key of their hashes."""

from __future__ import annotations

import secrets
from typing import Literal

from recon.base.errors import ConfigError, EvidenceError
from recon.base.storage import Storage
from recon.base.text import first_line

SamplesPolicy = Literal["none", "keys", "hash", "full"]
# The policies, the one that shows least first.
POLICIES: tuple[SamplesPolicy, ...] = ("none", "keys", "hash", "full")
KEY_FILE = "samples.key"
NEEDS_KEY = (
    "samples: hash needs a secret key, and where the ledger is no local folder none can be kept beside it; set "
    "hash_key: \"{{ env_var('…') }}\" at the top of recon.yml"
)


def keeps_key(ledger: str | None) -> bool:
    """Whether a key can be kept beside the ledger, readable by its owner alone: in a local folder."""
    return ledger is not None and Storage(ledger).local is not None


def kept_hash_key(ledger: str | None) -> bytes:
    """The random key that is kept in the ledger's folder, mode 0600; made when it is first needed.

    Raises:
        ConfigError: it cannot be kept there.
    """
    if ledger is None or not keeps_key(ledger):
        raise ConfigError(NEEDS_KEY)
    storage = Storage(ledger)
    try:
        storage.create(KEY_FILE, secrets.token_hex(32).encode(), mode=0o600)
        return storage.read(KEY_FILE)  # its own, or the one that was there
    except (OSError, EvidenceError) as error:
        raise ConfigError(
            f"the key of samples: hash cannot be kept at {storage.uri}/{KEY_FILE}: {first_line(error)}; make the "
            "folder writable, or set hash_key in recon.yml"
        ) from error
