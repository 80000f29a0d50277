"""What a check is, all checks by name, and the rooms of checks.

In reading order:

- `base` and `data_check`: the classes to derive from; the class says what a check costs.
- `registry` (the checks by name), `binding` (recon.yml's tests bound to pipelines and sinks, as `bound` has them),
  `select` (dbt's --select), `threshold` (severity, warn_if, error_if), `samples` (which values a result may show).
- The rooms: `data` holds the checks that users write in YAML, `evidence` the pure ones that judge witnesses. `engine`
  measures, and is the only one that runs Spark jobs. `comparison` compares two tables by key.
- What several checks share: `period` (a length of time), `progress_check` (those of query progress).

A check of your own derives from one of these classes, and is made known by `register` or by an entry point of
the group `recon.checks`. Imports nothing of `recon.write`, nor any room that imports it.
"""

from recon.checks import data_check
from recon.checks.base import EvidenceCheck
from recon.checks.data_check import *  # noqa: F403  # the names are listed once, in data_check
from recon.checks.registry import register
from recon.model import Verdict

__all__ = ["EvidenceCheck", "Verdict", "register"]
__all__ += data_check.__all__
