"""`heads:` of recon.yml: who signs the heads of the ledger's trees, and where they are published."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from recon.project.fields import Strict, Texts
from recon.project.messages import BadValue

_KINDS = ("folder", "topic", "git", "command")


def _origin(value: str) -> str:
    # It is the name of a key and the first line of a signed note, where spaces and '+' separate.
    if not value.isprintable() or not value or any(c.isspace() or c == "+" for c in value):
        raise BadValue("may hold no space and no '+', such as example.org/lake", show_value=True)
    return value


class Place(Strict):
    """A place where heads are published: one of `folder`, `topic`, `git` and `command`.

    `folder`: a path or URI, with `storage_options` where they are others than the project's. `topic`: a Kafka topic,
    with `kafka` where the client's settings are others than the project's. `git`: a clone on this machine, to which a
    commit is added, and pushed where it has a remote. `command`: a program and its arguments, which reads the document
    from its standard input.
    """

    folder: str | None = None
    storage_options: Texts = Field(default_factory=dict, repr=False)
    topic: str | None = None
    kafka: Texts = Field(default_factory=dict, repr=False)
    git: str | None = None
    command: tuple[str, ...] = Field(default=(), repr=False)

    @model_validator(mode="after")
    def _one_kind(self) -> Place:
        given = [kind for kind in _KINDS if getattr(self, kind)]
        if len(given) != 1:
            raise BadValue(f"needs one of {', '.join(_KINDS)}, and has {' and '.join(given) or 'none'}")
        return self

    @property
    def name(self) -> str:
        """The place in messages; of a command its program alone, since arguments may be secret."""
        if self.command:
            return f"command {self.command[0]}"
        return self.folder or (f"topic {self.topic}" if self.topic else f"git {self.git}")


class Timestamps(Strict):
    """A timestamp authority (RFC 3161): its URL, and a PEM file with the root certificates that it is verified by."""

    url: str
    roots: str | None = None


class Heads(Strict):
    """Signed heads of the ledger's trees. Without a key nothing is signed.

    `origin` names the ledger for the whole world, by default the project's name. `key`: an Ed25519 key, from the
    environment; `key_file`: a file that holds it. `public_keys`: further keys whose signatures are accepted, such as an
    earlier one.
    """

    origin: Annotated[str, AfterValidator(_origin)] | None = None
    key: str | None = Field(default=None, repr=False)
    key_file: str | None = None
    public_keys: tuple[str, ...] = ()
    publish: tuple[Place, ...] = ()
    timestamp: Timestamps | None = None

    @model_validator(mode="after")
    def _one_key(self) -> Heads:
        if self.key is not None and self.key_file is not None:
            raise BadValue("has both 'key' and 'key_file'; keep one of them", "key_file", owner=True)
        return self
