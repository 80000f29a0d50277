"""recon proves, batch by batch, that streamed data arrived: from source offsets to sink commits."""

from recon._version import __version__

__all__ = ["__version__"]
