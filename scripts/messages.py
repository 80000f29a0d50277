"""`make messages`: take over the messages that tests see into tests/golden/messages.json.

    python -m scripts.messages                             the tests without a JVM
    python -m scripts.messages tests/kafka/test_x.py       every test of a file or folder, on real parts too

Tests that did not run keep their messages. Without arguments, those of tests that are gone go.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.messages import take_over

WITHOUT_A_JVM = "not (spark or kafka or database or browser or cluster or connect or demo or crash)"


def main() -> int:
    """Run the tests, and take over what they saw whatever else failed."""
    arguments = sys.argv[1:]
    named = any(Path(argument.partition("::")[0]).exists() for argument in arguments)
    with tempfile.TemporaryDirectory() as folder:
        seen = Path(folder) / "seen"
        seen.touch()
        command = [sys.executable, "-m", "pytest", "-q", *([] if named else ["-m", WITHOUT_A_JVM]), *arguments]
        code = subprocess.run(command, env={**os.environ, "RECON_MESSAGES_SEEN": str(seen)}, check=False).returncode
        take_over(seen, every_test=not arguments and code == 0)
    return code


if __name__ == "__main__":
    sys.exit(main())
