"""What the metrics mean, as one table for TensorBoard's text panel."""

from collections.abc import Iterable

from app.protocols import Explained

HEADINGS = ("metric", "meaning", "healthy", "what to do otherwise")


def guide(parts: Iterable[object]) -> str:
    """One Markdown row for each metric that a part explains; empty where none does.

    The sentences are those of the classes that compute the metrics (:class:`app.protocols.Explained`). Two
    that explain the same metric alike share a row, and two that differ have one each.

    Args:
        parts: modules and callbacks, in the order in which their metrics are listed.
    """
    rows = dict.fromkeys(row for part in parts if isinstance(part, Explained) for row in part.METRICS.items())
    if not rows:
        return ""
    table = [HEADINGS, ("---",) * len(HEADINGS), *(_row(metric, text) for metric, text in rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in table)


def _row(metric: str, text: str) -> tuple[str, ...]:
    meaning, *rest = text.replace("|", "\\|").split("; ", 2)
    healthy, advice = [*rest, "", ""][:2]
    name = metric if "/" in metric else f"diagnostics/{metric}"
    # Markdown takes a name between underscores for emphasis, but for code it does not.
    return f"`{name}`", meaning, healthy.removeprefix("healthy").lstrip(": "), advice
