"""The command `tidegate`: `tidegate --help` lists its verbs."""

import signal
import sys

from ._tidegate import run_command


def main() -> None:
    # Python's own handler would run only after the command has ended.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    words = sys.argv[1:]
    if words[:1] == ["routes"]:
        from ._routes import run

        sys.exit(run(words[1:]))
    sys.exit(run_command(["tidegate", *words]))
