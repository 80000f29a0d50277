"""A store that is not on this machine's disks, as far as recon knows."""

from __future__ import annotations

from typing_extensions import override

from recon.base.storage import Storage


class Remote(Storage):
    """A folder by its file:// URI that is read as every scheme but local paths is, through pyarrow.fs."""

    @property
    @override
    def local(self) -> None:
        return None
