"""``python -m app report``: turns the runs of a study, or any runs, into a page."""

from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser
from rich.console import Console

from app import commands
from app.errors import Mistake


def parser() -> ArgumentParser:
    """The command's options."""
    made = commands.parser(
        "report",
        "Write the page of a study, or a page that compares runs.",
        "runs/z_plane_digits/version_0 runs/z_plane_digits/version_1",
    )
    made.add_argument("folders", type=Path, nargs="+", help="A study's folder, or folders of runs.")
    made.add_argument(
        "--output", type=Path | None, help="Where it goes (default: report/ in the study, or here)."
    )
    return made


def main(arguments: Sequence[str]) -> int:
    """Runs the command.

    Raises:
        Mistake: A folder is not there or holds nothing to report.
    """
    options = commands.parse(parser(), arguments)
    from app.study import comparison, page
    from app.study.collect import collect
    from app.study.session import FILE

    folders: list[Path] = options.folders
    for folder in folders:
        if not folder.is_dir():
            raise Mistake(f"there is no folder {folder}")
    studies = [folder for folder in folders if (folder / FILE).is_file()]
    if studies and len(folders) > 1:
        raise Mistake(f"{studies[0]} is a study's folder and has a page of its own: give it alone")
    if studies:
        written = page.write(collect(folders[0]), options.output or folders[0] / "report")
    else:
        written = comparison.write(folders, options.output or Path("report"))
    Console().print(f"page  {written}", soft_wrap=True)
    return 0
