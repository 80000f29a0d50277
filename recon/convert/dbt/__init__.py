"""dbt's schema.yml as recon.yml: `read`.

`reading` goes through the files, `project` reads the rest of the dbt project, `nodes` reads values of their YAML.
`tests` translates one test, `packages` those of dbt_utils and dbt_expectations. `jinja` finds the Jinja that recon.yml
does not know, `writing` writes the text. A test is written only if recon can build its check; any other becomes a
comment with the reason.
"""

from recon.convert.dbt.reading import Imported, read

__all__ = ["Imported", "read"]
