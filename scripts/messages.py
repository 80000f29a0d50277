"""`make messages`: take over the messages that the tests without a JVM see into tests/golden/messages.json."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.messages import take_over

WITHOUT_A_JVM = "not (spark or kafka or database or browser or cluster or demo or crash)"


def main() -> int:
    """Run the tests, and take over what they saw whatever else failed."""
    with tempfile.TemporaryDirectory() as folder:
        seen = Path(folder) / "seen"
        seen.touch()
        command = [sys.executable, "-m", "pytest", "-q", "-m", WITHOUT_A_JVM, *sys.argv[1:]]
        code = subprocess.run(command, env={**os.environ, "RECON_MESSAGES_SEEN": str(seen)}, check=False).returncode
        selected = any(argument == "-k" or Path(argument.partition("::")[0]).exists() for argument in sys.argv[1:])
        take_over(seen, every_test=not selected and code == 0)
    return code


if __name__ == "__main__":
    sys.exit(main())
