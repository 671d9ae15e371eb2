"""Commands with a parser of their own: made alike, and mistakes told alike."""

from argparse import ArgumentError
from collections.abc import Sequence

from jsonargparse import ArgumentParser, Namespace

from app.errors import Mistake, explain


def parser(name: str, description: str, example: str) -> ArgumentParser:
    """A parser for ``python -m app NAME``, without options yet.

    Args:
        name: Of the command.
        description: At the top of its help.
        example: At the end of its help: what follows the command's name.
    """
    return ArgumentParser(
        prog=f"python -m app {name}",
        exit_on_error=False,
        allow_abbrev=False,  # a mistyped option must not pass for another
        description=description,
        epilog=f"example: python -m app {name} {example}",
    )


def parse(made: ArgumentParser, arguments: Sequence[str]) -> Namespace:
    """Parses a command's arguments.

    Raises:
        Mistake: What is wrong with them, with the nearest right name.
    """
    try:
        parsed: Namespace = made.parse_args(list(arguments))
    except ArgumentError as error:
        cause = explain(str(error), [action.dest for action in made._actions])
        raise Mistake(f"{cause}; see {made.prog} --help") from error
    return parsed
