"""Entry point of the `autotune` command: turns every fault into one line and an exit code."""

from __future__ import annotations

import codecs
import os
import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        _mend_streams()
        from autotune.cli.main import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # before or after the verb, which tells its own
        print("autotune: interrupted [interrupted]", file=sys.stderr)
        code = 130
    sys.exit(code)


def _mend_streams() -> None:
    """Streams that can be written to, in every locale and also where the caller has closed them.

    A closed number would go to the next file that is opened: what a program started here prints, would be
    written into it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    codecs.register_error("autotune-escape", _escaped)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="autotune-escape")  # type: ignore[union-attr]


def _escaped(fault: UnicodeError) -> tuple[str, int]:
    r"""What the terminal's encoding lacks as \uXXXX: the one way to write it that JSON knows too."""
    if not isinstance(fault, UnicodeEncodeError):
        raise fault
    text = fault.object[fault.start : fault.end].encode("utf-16-be", "surrogatepass")
    units = [text[at : at + 2].hex() for at in range(0, len(text), 2)]
    return "".join(f"\\u{unit}" for unit in units), fault.end


if __name__ == "__main__":
    main()
