"""Errors as one line: what was wrong, where, and what would be right."""

import difflib
import importlib
import inspect
import re
from collections.abc import Iterable, Sequence


class RunFailed(RuntimeError):
    """A run that had begun to train did not end well."""


class Mistake(ValueError):
    """What was asked for cannot be done; the message is ready to be shown."""


# What the parser says around the cause of an error: the alternatives that it also tried.
AROUND = (
    "Parser key ",
    "Problem with given class_path",
    "Does not validate against",
    "Subtypes:",
    "Errors:",
    "Expected a path but",
    "Expected a <class 'NoneType'>",
    "Not a valid subclass of",
    "Subclass types expect",
    "a class path (str)",
    "a dict ",
)


def one_line(error: BaseException) -> str:
    """Returns the message of an error without line breaks, without the parser's detours."""
    message = str(error)
    if isinstance(error, Mistake):
        return message
    return shortened(explain(message), 500) or type(error).__name__


def explain(message: str, options: Sequence[str] = ()) -> str:
    """Returns the cause in a parser's message, with the nearest right name.

    Args:
        message: Of one or many lines, as the parser gives it.
        options: Names that the command takes, without dashes, for the hint.
    """
    if "compute_fn" in message:  # of a link between sizes, quoted with all the settings
        message = message.rpartition(" failed: ")[2]
    text, _, given = message.partition("Given value type:")
    value = " ".join(given.partition("Given value: ")[2].split())
    nested = re.search(r"val='(.*)'\)$", value)
    value = (nested[1] if nested else value).partition(". Got value:")[0]
    keys = re.findall(r'Parser key "([^"]+)":', text)
    classes = re.findall(r"Problem with given class_path '([^']+)'", text)
    where = ".init_args.".join(keys)
    lines = [unquoted(line.strip().removeprefix("- ")) for line in text.splitlines()]
    causes = [line for line in lines if line and not line.startswith(AROUND)]
    cause = " ".join((causes[0] if keys or classes else " ".join(causes)).split()) if causes else ""

    if not cause and (kinds := re.findall(r"Not a valid subclass of (\w+)", text)):
        return f"{where} must be a {kinds[-1]}, given by its class_path, got {shortened(value)}"
    if "loading state_dict" in cause:
        keys = re.findall(r'"([^"]+)"', cause) or re.findall(r"size mismatch for ([^:]+):", cause)
        return (
            f"the checkpoint does not fit the network: {len(keys)} parameters differ, the first is {keys[0]}"
        )
    if found := re.search(r"Option '([^']+)' is not accepted", cause):
        owner = classes[-1] if classes else where
        return f"{owner} has no option {found[1]}{hint(found[1], parameters(owner))}"
    if found := re.search(r"does not accept option '([^']+)'|unrecognized arguments: (.*)", cause):
        name = (found[1] or found[2]).split()[0].partition("=")[0]
        return f"there is no option {name}{hint(name.lstrip('-'), options)}"
    if found := re.search(r"module '([^']+)' has no attribute '([^']+)'", cause):
        return f"{prefix(where)}there is no {found[1]}.{found[2]}{hint(found[2], members(found[1]))}"
    if found := re.search(r"No module named '([^']+)'", cause):
        return f"{prefix(where)}there is no module {found[1]}"
    if "does not correspond to a subclass of" in cause:
        return f"{where} must be a {cause.rpartition(' ')[2]}, got {value}"
    if found := re.search(r"arguments are required: (.*)", cause):
        if classes:
            return f"{classes[-1]} needs {found[1]}"
        missing = " and ".join("--" + name.strip().rpartition(".")[2] for name in found[1].split(","))
        return f"{missing} must be given, by an option or a config such as --config z_plane_digits"
    if kinds := expected(causes):
        got = cause.rpartition("Got value: ")[2] if "Got value: " in cause else value
        return f"{where} must be {' or '.join(kinds)}, got {got}"
    return cause


def expected(causes: Iterable[str]) -> list[str]:
    """Returns the types and choices that the parser says it would have taken."""
    kinds: list[str] = []
    for cause in causes:
        if found := re.match(r"Expected an? (?:<class '([^']+)'>|typing\.Literal\[(.*)\])", cause):
            kinds += [found[1]] if found[1] else [item.strip(" '") for item in found[2].split(",")]
    return list(dict.fromkeys(kinds))


def shortened(text: str, length: int = 80) -> str:
    """Returns the beginning of a long text."""
    return text if len(text) <= length else text[: length - 2] + " …"


def unquoted(text: str) -> str:
    """Returns the text without the quotes around the whole of it."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def hint(name: str, known: Iterable[str]) -> str:
    """Returns the nearest known name as the end of a sentence, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def prefix(where: str) -> str:
    """Returns the place as the beginning of a sentence."""
    return f"{where}: " if where else ""


def parameters(path: str) -> list[str]:
    """Returns the names of a class's arguments, none if it cannot be imported."""
    module, _, name = path.rpartition(".")
    try:
        return list(inspect.signature(getattr(importlib.import_module(module), name)).parameters)
    except (ImportError, AttributeError, ValueError, TypeError):
        return []


def members(module: str) -> list[str]:
    """Returns the public names of a module, none if it cannot be imported."""
    try:
        return [name for name in dir(importlib.import_module(module)) if not name.startswith("_")]
    except ImportError:
        return []
