"""The command `tidegate`: `tidegate --help` lists its verbs."""

import signal
import sys

from ._tidegate import run_command


def main() -> None:
    # Python's own handler would run only after the command has ended.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(run_command(["tidegate", *sys.argv[1:]]))
