"""Finding configuration files: shipped ones by name, and those that a file includes before itself."""

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

SHIPPED = Path(__file__).resolve().parents[1] / "configs"
DEFAULTS = SHIPPED / "defaults.yaml"
COMPONENTS = ("model", "data")


def shipped() -> dict[str, Path]:
    """Returns the shipped configs by name: experiments by their stem, components as ``model/<stem>``."""
    found = {path.stem: path for path in sorted(SHIPPED.glob("*.yaml")) if path != DEFAULTS}
    for part in COMPONENTS:
        found |= {f"{part}/{path.stem}": path for path in sorted((SHIPPED / part).glob("*.yaml"))}
    return found


def locate(name: str, folder: Path | None = None) -> Path:
    """Returns the config file that ``name`` stands for.

    Args:
        name: A file, or the name of a shipped config, with or without ``configs/`` and ``.yaml``.
        folder: Where relative files are looked for first; the working folder if not given.

    Raises:
        FileNotFoundError: There is no such file and no shipped config of that name.
    """
    path = (folder or Path()) / name
    if path.is_file():
        return path
    known = shipped()
    stem = name.removeprefix("configs/").removesuffix(".yaml")
    if stem in known:
        return known[stem]
    near = difflib.get_close_matches(stem, known, n=1)
    experiments = ", ".join(name for name in known if "/" not in name)
    hint = f"did you mean {near[0]}?" if near else f"shipped are {experiments}"
    raise FileNotFoundError(f"there is no config {name}; {hint}")


def included(path: Path, seen: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Yields the files that make up the config at ``path``, in the order in which they are merged.

    Files in its ``include`` list, relative to itself, come before it, theirs before them.

    Raises:
        ValueError: The file is no YAML mapping, or it includes itself.
        FileNotFoundError: An included file does not exist.
    """
    path = path.resolve()
    if path in seen:
        raise ValueError(f"{path} includes itself")
    try:
        content = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must be a mapping of settings, got {type(content).__name__}")
    includes = content.get("include") or []
    if not isinstance(includes, list) or not all(isinstance(item, str) for item in includes):
        raise ValueError(f"{path}: include must be a list of files, got {includes!r}")
    for item in includes:
        yield from included(locate(item, path.parent), (*seen, path))
    yield path


def expand(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """Replaces every ``--config`` of a command line by the files that make it up.

    Returns:
        The arguments, and the name of the experiment: the stem of the first config.
    """
    expanded: list[str] = []
    experiment: str | None = None
    rest = iter(arguments)
    for argument in rest:
        flag, equals, value = argument.partition("=")
        if flag not in ("--config", "-c"):
            expanded.append(argument)
            continue
        name = value if equals else next(rest, None)
        if name is None:
            raise ValueError("--config needs the name of a config")
        path = locate(name)
        experiment = experiment or path.stem
        for file in included(path):
            expanded += ["--config", str(file)]
    return expanded, experiment
