"""An error in an event: one sentence, without the values of rows that Spark's errors quote."""

from __future__ import annotations

from recon.base.errors import ReconError
from recon.base.text import first_line
from recon.checks.samples import without_values
from recon.project import CheckConfig
from recon.spark.errors import spark_error


def sentence(error: BaseException | str) -> str:
    r"""What went wrong, in at most 400 characters; a text is a trace's.

    >>> sentence("[CAST_INVALID_INPUT] The value 'ada' of the type \"STRING\" cannot be cast\n  at …")
    '[CAST_INVALID_INPUT] The value *** of the type "STRING" cannot be cast'
    """
    given = error if isinstance(error, Exception) else Exception(str(error))
    text = first_line(given) if isinstance(error, ReconError) else spark_error(given)
    # Whatever reports of this project may show: channels and exporters are others' systems.
    return without_values(text, CheckConfig())
