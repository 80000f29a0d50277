"""dbt's schema.yml as recon.yml: `read`."""

from recon.convert.dbt.reading import Imported, read

__all__ = ["Imported", "read"]
