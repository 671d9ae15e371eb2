"""``python -m app``: chooses the subcommand and turns every failure into one line and an exit code."""

import difflib
import importlib
import signal
import sys
import threading
from collections.abc import Sequence

TRAINING = ("fit", "validate", "test", "predict")
OWN = {
    "dashboard": "app.dashboard_command",
    "study": "app.study.study_command",
    "report": "app.study.report_command",
}
"""Commands with a parser of their own, by the module whose ``main(arguments)`` runs them."""
COMMANDS = (*TRAINING, *OWN)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line.

    Args:
        arguments: Without the program's name; those of the process if not given.

    Returns:
        The exit code: 0, 1 for a run that failed, 2 for a mistake in what was asked for, and 128 plus the
        number of the signal that ended the run.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]
    if not given or given[0] in ("-h", "--help"):
        from app.welcome import welcome

        print(welcome())
        return 0
    if given[0] not in COMMANDS:
        near = difflib.get_close_matches(given[0], COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
        print(f"error: there is no command {given[0]}; {hint}", file=sys.stderr)
        return 2

    from app.callbacks.interruption import Interrupted, at_once
    from app.errors import RunFailed, one_line
    from app.quiet import silence
    from app.ranks import rank, tell

    silence()
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, at_once) if in_main_thread else None
    try:
        if given[0] in OWN:
            return int(importlib.import_module(OWN[given[0]]).main(given[1:]))
        from app.cli import CLI

        CLI(given)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Interrupted as stop:
        if rank():
            return 0  # the first process tells, and has the code; another with one would be a failure
        tell(str(stop))
        return stop.exit_code
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if debug:
            raise
        tell(one_line(error))
        return 1 if isinstance(error, RunFailed) else 2
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
    return 0


if __name__ == "__main__":
    sys.exit(main())
