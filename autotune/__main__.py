"""Entry point of the `autotune` command: turns every fault into one line and an exit code."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    from autotune.cli.main import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
