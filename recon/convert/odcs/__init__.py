"""Contracts of the Open Data Contract Standard (ODCS) 3.x: `read` makes a recon.yml of one, `contract_of` the reverse.

`document` reads a file by the standard's own model (the package open-data-contract-standard), `reading` goes through
its objects, `rules` translates quality rules, `exporting` writes a contract. What has no counterpart in the standard
becomes a rule of `engine: recon`, so that an import of the contract restores it.
"""

from recon.convert.odcs.exporting import Exported, contract_of
from recon.convert.odcs.reading import Imported, read

__all__ = ["Exported", "Imported", "contract_of", "read"]
