"""``tilewright`` and ``python -m tilewright``: ctrl-C is heard before much is imported."""

import os
import signal
import sys


def leave(number: int, _: object) -> None:
    """End at once, with the exit status that shells give: there is nothing to undo yet.

    (An exception while modules are imported would end in a traceback, or in one of the modules.)
    """
    os.write(2, b"interrupted\n")
    os._exit(128 + number)


def main() -> None:
    """Entry point of the installed command."""
    # Where the caller ignores ctrl-C, as shells do for commands in the background, so does this
    # one.
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heard:
        signal.signal(signal.SIGINT, leave)
    from tilewright.cli.main import main as command

    try:
        if heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(128 + signal.SIGINT)
    finally:  # Python ends: temporary folders go.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()
