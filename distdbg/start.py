"""The command's entry point. Until the command line is loaded, Ctrl-C ends the process as the signal itself does.

Python would print a traceback of whatever it was importing.
"""

# Built into the interpreter: the module signal executes Python for milliseconds, in which Ctrl-C may come.
import _signal as signal  # type: ignore[import-not-found]


def main() -> None:
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # not in a process that ignores it, as one in the background does
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from distdbg import cli

    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, handler)
    cli.main()
