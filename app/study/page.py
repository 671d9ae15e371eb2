"""The page of a study: an HTML file, the same as Markdown, tables as CSV and LaTeX, figures as SVG, PDF."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FunctionLoader
from markupsafe import Markup
from matplotlib.figure import Figure

from app.study import figures, tables
from app.study.plan import Exhibit
from app.study.results import DIVERGED, DONE, FAILED, MISSING, Results
from app.study.verdicts import judge, tally

SIGNS = {"holds": "✓", "does not hold": "✗", "not settled": "?"}

LATEX = {
    "±": r"$\pm$",
    "×": r"$\times$",
    "‖": r"$\|$",
    "…": r"\dots{}",
    "◄": r"$\triangleleft$",
    "√": r"$\sqrt{}$",
    "Σ": r"$\Sigma$",
    "→": r"$\to$",
    "≥": r"$\ge$",
    "≤": r"$\le$",
    "−": r"$-$",
    "γ": r"$\gamma$",
    "β": r"$\beta$",
    "π": r"$\pi$",
    "∆": r"$\Delta$",
    "ℓ": r"$\ell$",
    "₁": "$_1$",
    "₂": "$_2$",
    "₃": "$_3$",
    "ᵢ": "$_i$",
}
"""Signs that a LaTeX engine may not know."""

METHOD = """\
The last epoch's weights are judged; the best checkpoint's value stands beside. Every tuned model got the
same grid, one run a point, chosen on validation data with a seed of its own; test data were opened once,
after all choices. Networks are matched in trained parameters where their file says so. Intervals are 95 %
t-intervals over seeds, paired where models share them, of logarithms where a claim is about a ratio. A claim
holds, or does not, only with at least five seeds and a p-value below .05 after Holm's correction over all
comparisons of this page; “no difference” is said only by two one-sided tests within the stated margin. All
else is not settled. A run whose numbers stopped being finite counts as the trivial predictor."""


@dataclass(frozen=True)
class Block:
    """A table, a figure or a paragraph.

    Args:
        title: Over it; none if empty.
        name: Of its files.
        note: Under the title.
        table: What is shown, if it is a table.
        svg: What is shown, if it is a figure.
        text: What is shown, if it is a paragraph.
        folded: Whether one must ask to see it.
    """

    title: str = ""
    name: str = ""
    note: str = ""
    table: pd.DataFrame | None = None
    svg: str = ""
    text: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """A heading with its blocks."""

    title: str
    blocks: list[Block] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        """Of links within the page."""
        return re.sub(r"\W+", "-", self.title.lower()).strip("-")


class Writer:
    """Collects sections in a folder, writing each table and figure to its own files.

    Args:
        folder: Of the page.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sections: list[Section] = []
        folder.mkdir(parents=True, exist_ok=True)

    def section(self, title: str, *blocks: Block | None) -> None:
        """Adds a section, unless it is empty."""
        shown = [block for block in blocks if block is not None]
        if shown:
            self.sections.append(Section(title, shown))

    def table(
        self, name: str, frame: pd.DataFrame, title: str = "", raw: pd.DataFrame | None = None, **more: object
    ) -> Block | None:
        """Writes a table, with ``raw`` for its numbers; ``None`` for an empty one."""
        if not len(frame):
            return None
        place = self.folder / "tables"
        place.mkdir(exist_ok=True)
        (frame if raw is None else raw).to_csv(place / f"{name}.csv", index=False)
        (place / f"{name}.tex").write_text(latex(frame), encoding="utf-8")
        return replace(Block(title, name, table=frame), **more)  # type: ignore[arg-type]

    def figure(self, name: str, figure: Figure | None, title: str = "", **more: object) -> Block | None:
        """Writes a figure; ``None`` where there is nothing to draw."""
        if figure is None:
            return None
        svg = figures.save(figure, self.folder / "figures", name)
        return replace(Block(title, name, svg=svg), **more)  # type: ignore[arg-type]

    def write(self, **content: object) -> Path:
        """Writes ``report.html`` and ``report.md``; returns the former."""
        environment = Environment(
            loader=FunctionLoader(template), autoescape=lambda name: bool(name) and "html" in str(name),
            trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        )  # fmt: skip
        environment.filters |= {"markdown": markdown, "svg": Markup, "numeric": numeric}
        for kind in ("md", "html"):
            text = environment.get_template(f"report.{kind}.j2").render(sections=self.sections, **content)
            path = self.folder / f"report.{kind}"
            path.write_text(text, encoding="utf-8")
        return path


def template(name: str) -> str:
    """A packaged template."""
    return (resources.files("app.study") / "templates" / name).read_text(encoding="utf-8")


def latex(frame: pd.DataFrame) -> str:
    """A table for booktabs; texts are escaped."""
    columns = "l" + "".join("r" if numeric(frame, name) else "l" for name in list(frame)[1:])
    text: str = frame.to_latex(index=False, escape=True, column_format=columns)
    return "".join(LATEX.get(sign, sign) for sign in text)


def numeric(frame: pd.DataFrame, name: str) -> bool:
    """Whether a column is of numbers, and so stands right."""
    if name == frame.columns[0]:
        return False  # names, even those that begin with a digit
    cells = [str(cell) for cell in frame[name] if str(cell) not in ("", "–")]
    return bool(cells) and sum(bool(re.match(r"[−\-\d.]", cell)) for cell in cells) > len(cells) / 2


def markdown(frame: pd.DataFrame) -> str:
    """A table as Markdown."""
    clean = frame.map(lambda cell: str(cell).replace("|", "\\|"))
    align = ["right" if numeric(frame, name) else "left" for name in frame]
    text: str = clean.to_markdown(index=False, disable_numparse=True, colalign=align)
    return text


def write(results: Results, folder: Path) -> Path:
    """Writes the page of a study, at any moment of it.

    Args:
        results: What there is.
        folder: Where ``report.html``, ``report.md``, ``tables/`` and ``figures/`` go.

    Returns:
        The HTML file.
    """
    study, page = results.study, Writer(folder)
    preset = study.presets[results.preset]
    verdicts = judge(results)
    claims = [(claim, verdicts[name]) for name, claim in study.claims.items()]
    page.table("claims", claims_frame(results))
    for name, about in tables.asked(results).items():
        if len(tables.rows_of(results, name)):
            page.section(about.label, *task_blocks(page, results, name))
    drawn = [exhibit_block(page, results, name, exhibit) for name, exhibit in study.exhibits.items()]
    page.section("Exhibits", *drawn)
    page.section(
        "Behind it",
        page.table("tuning", tables.tuning_table(results), "What the tuning saw (◄ chosen)", folded=True),
        page.table("notes", tables.notes_table(results), "Settings that are ours"),
        page.table("lost", tables.lost_table(results), "Runs without a result"),
        page.table("environment", environment_frame(results), "Versions and hardware", folded=True),
        Block("How it was judged", text=" ".join(METHOD.split())),
    )
    counts = count_runs(results)
    return page.write(
        title=study.title,
        about=study.about,
        preset=f"Preset {results.preset}, seeds {', '.join(map(str, preset.seeds))}. {preset.note}",
        counts=f"{sum(counts.values())}, of which "
        + ", ".join(f"{count} {status}" for status, count in counts.items() if count),
        claims=claims,
        signs=SIGNS,
        tally=tally(verdicts),
        claims_hash=results.claims_hash,
        command=results.command,
    )


def count_runs(results: Results) -> dict[str, int]:
    """How many runs ended how; one that measures several models is one."""
    if not len(results.runs):
        return {}
    study = results.study
    calls = {name: about.run or name for name, about in study.measurements.items()}
    model = results.runs["model"].where(results.runs["task"].isin(list(study.tasks)), "")
    keys = pd.DataFrame(
        {"task": results.runs["task"].replace(calls), "model": model, "seed": results.runs["seed"]}
    )
    found = results.runs.loc[~keys.duplicated(), "status"].value_counts()
    return {status: int(found.get(status, 0)) for status in (DONE, DIVERGED, FAILED, MISSING)}


def task_blocks(page: Writer, results: Results, name: str) -> Sequence[Block | None]:
    """What is shown of every task and every measurement."""
    about = tables.asked(results)[name]
    curve = about.metric.replace("test/", "val/")
    known = results.curves[results.curves["task"] == name] if len(results.curves) else results.curves
    lines = Exhibit("", "curves", [name], [curve])
    dots = Exhibit("", "bars", [name], [about.metric])
    has_curve = len(known) and (known["metric"] == curve).any()
    return [
        page.figure(f"{name}_models", figures.draw(results, dots)),
        page.table(
            name,
            tables.task_table(results, name),
            raw=tables.raw_table(results, [name], [about.metric, f"best/{about.metric}"], []),
        ),
        page.table(f"{name}_seeds", tables.seeds_table(results, name), "Every seed", folded=True),
        page.figure(f"{name}_curves", figures.draw(results, lines) if has_curve else None, "While training"),
    ]


def exhibit_block(page: Writer, results: Results, name: str, exhibit: Exhibit) -> Block | None:
    """A study's own table or figure."""
    if exhibit.kind == "table":
        return page.table(
            f"exhibit_{name}", tables.exhibit_table(results, exhibit), exhibit.title, note=exhibit.note
        )
    return page.figure(f"exhibit_{name}", figures.draw(results, exhibit), exhibit.title, note=exhibit.note)


def claims_frame(results: Results) -> pd.DataFrame:
    """The claims as a table, for its files."""
    verdicts = judge(results)
    rows = [
        {
            "claim": claim.claim,
            "source": claim.source,
            "verdict": verdicts[name].words,
            "grounds": verdicts[name].grounds,
            "would hold": claim.condition if verdicts[name].kind == "does not hold" else "",
        }
        for name, claim in results.study.claims.items()
    ]
    return pd.DataFrame(rows)


def environment_frame(results: Results) -> pd.DataFrame:
    """Versions and hardware as a table."""
    noted = results.environment
    return pd.DataFrame({"what": noted.keys(), "version or value": noted.values()})
