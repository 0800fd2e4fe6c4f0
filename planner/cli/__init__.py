"""The command line. Everything heavy is imported inside the command that needs it."""


def main() -> None:
    """Entry point of `tapestry`. Exit 0 done, 1 failed, 2 bad input, 3 infeasible, 4 no plan in time."""
    import signal
    import time

    began = time.monotonic()  # a time limit counts from here, what is imported below included

    from .app import app
    from .guard import terminated

    signal.signal(signal.SIGTERM, terminated)
    app(prog_name="tapestry", obj=began)
