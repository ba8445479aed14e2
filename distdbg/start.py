"""The command's entry point. Until the command line is loaded, Ctrl-C ends the process as the signal itself does.

Python would print a traceback of whatever it was importing.
"""

import signal


def main() -> None:
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # not in a process that ignores it, as one in the background does
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from distdbg import cli

    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, handler)
    cli.main()
