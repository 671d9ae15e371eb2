"""Claims judged: what holds, what does not, and what is not settled, each with its grounds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from app.study.comparisons import SEEDS, Comparison, Kind, compare, label, planned, subject
from app.study.plan import Claim, Study
from app.study.results import Results
from app.study.statistics import Interval, holm


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Args:
        kind: The answer.
        at_reduced_size: Whether it is about smaller runs than the claim's.
        words: As the page says it.
        grounds: The numbers, in a sentence.
        comparisons: All of them.
    """

    kind: Kind
    at_reduced_size: bool
    words: str
    grounds: str
    comparisons: tuple[Comparison, ...]


def judge(results: Results) -> dict[str, Verdict]:
    """Judges all claims of a study, with Holm's correction over all comparisons of the page."""
    study = results.study
    found = {name: compare(claim, claim.models, results) for name, claim in study.claims.items()}
    grids = {name: compare(claim, claim.grid, results) for name, claim in study.claims.items()}
    # All that the preset plans counts from the first page on: no page is kinder than the last.
    family = [
        one
        for name, claim in study.claims.items()
        for one in (*found[name], *grids[name])
        if planned(one, claim, results)
    ]
    adjusted = holm([one.p for one in family])
    lookup = {id(one): one for group in (*found.values(), *grids.values()) for one in group}
    lookup |= {id(one): corrected(one, float(p)) for one, p in zip(family, adjusted, strict=True)}
    return {
        name: verdict(
            claim,
            tuple(lookup[id(one)] for one in found[name]),
            tuple(lookup[id(one)] for one in grids[name]),
            results,
        )
        for name, claim in study.claims.items()
    }


def corrected(one: Comparison, p: float) -> Comparison:
    """A comparison with its adjusted p-value on the side that the data are on."""
    if one.p_for <= one.p_contrary:
        return replace(one, p_for=p, p_contrary=1.0)
    return replace(one, p_for=1.0, p_contrary=p)


def verdict(
    claim: Claim, comparisons: tuple[Comparison, ...], grid: tuple[Comparison, ...], results: Results
) -> Verdict:
    """Puts a claim's comparisons, p-values adjusted, into one answer."""
    reduced = claim.published_size and not results.study.presets[results.preset].published_size
    kinds = [one.kind for one in comparisons]
    kind: Kind = "not settled"
    why = ""
    if "does not hold" in kinds:
        kind = "does not hold"
    elif kinds and all(one == "holds" for one in kinds):
        kind = "holds"
    elif any(one.difference.count == 0 for one in comparisons):
        why = "no values in this preset"
    elif any(one.difference.count < SEEDS for one in comparisons):
        why = f"fewer than {SEEDS} seeds"
    elif any(not clear(one.difference, claim) for one in comparisons):
        why = "an interval reaches across the margin"
    else:
        why = "not clear enough for so many comparisons"
    if kind == "does not hold" and claim.unpublished:
        failed = {one.model for one in grid if one.kind == "does not hold"}
        if not claim.grid or failed != set(claim.grid):
            kind, why = "not settled", f"unpublished settings ({claim.unpublished})"
    words = f"{kind}: {why}" if why else kind
    if reduced:
        words = f"at reduced size: {words}"
    return Verdict(kind, reduced, words, grounds(claim, comparisons, results.study), comparisons)


def clear(difference: Interval, claim: Claim) -> bool:
    """Whether the interval, not corrected for other comparisons, lies on one side of the margin."""
    low, high, margin = difference.low, difference.high, claim.margin
    if claim.kind == "equal":
        return (-margin < low and high < margin) or low > margin or high < -margin
    edge = margin if claim.kind == "greater" else -margin
    return low > edge or high < edge


def grounds(claim: Claim, comparisons: tuple[Comparison, ...], study: Study) -> str:
    """The numbers of a claim's comparisons, in a sentence each."""
    name = claim.metric or subject(claim, study).metric
    sentences = [sentence(one, claim, study, name) for one in comparisons if one.difference.count]
    notes = list(dict.fromkeys(note for one in comparisons for note in one.notes))
    if claim.margin:
        of_a_ratio = claim.scale == "ratio"
        shown = f"a factor of {math.exp(claim.margin):.3g}" if of_a_ratio else points(claim.margin, name)
        sentences.append(f"Margin: {shown}")
    return ". ".join([*sentences, *notes]) + "."


def sentence(one: Comparison, claim: Claim, study: Study, name: str) -> str:
    """A comparison in words."""
    name_of = {model: label(model, claim, study) for model in (one.model, one.against)}
    shown = f"{name_of[one.model]} {number(one.ours[0], name)} ± {number(one.ours[1], name)}"
    if one.theirs is not None:
        shown += (
            f" against {name_of[one.against]} {number(one.theirs[0], name)} ± {number(one.theirs[1], name)}"
        )
    elif one.value is not None:
        shown += f" against {number(one.value, name)}"
    shown += f" (n = {one.difference.count}"
    if math.isnan(one.difference.low):
        return shown + ")"
    mean, low, high = one.difference.mean, one.difference.low, one.difference.high
    if one.scale == "ratio":
        effect = f"ratio {math.exp(mean):.3g} [{math.exp(low):.3g}, {math.exp(high):.3g}]"
    else:
        effect = f"difference {points(mean, name)} [{points(low, name, '')}, {points(high, name, '')}]"
    p = min(one.p_for, one.p_contrary)
    return f"{shown}; {effect}; adjusted p {'< .001' if p < 0.001 else f'= {p:.3f}'})"


def number(value: float, name: str) -> str:
    """A value of a metric as people read it: accuracies in per cent."""
    if math.isnan(value):
        return "–"
    if is_accuracy(name):
        return f"{100 * value:.2f} %"
    if value != 0 and (abs(value) < 1e-3 or abs(value) >= 1e4):
        return f"{value:.2e}"
    return f"{value:.4g}"


def points(value: float, name: str, unit: str = " points") -> str:
    """A difference of two values of a metric: of accuracies in percentage points."""
    shown = f"{100 * value:.2f}{unit}" if is_accuracy(name) else number(value, name)
    return shown.replace("-", "−", 1) if value < 0 else shown


def is_accuracy(name: str) -> bool:
    """Whether a metric, or a difference of two, is a share of samples that are classified correctly."""
    return all(part.endswith("acc") or "certified_acc" in part for part in name.split(" - "))


def tally(verdicts: Mapping[str, Verdict]) -> dict[str, int]:
    """How many claims hold, do not, and are not settled."""
    kinds = [one.kind for one in verdicts.values()]
    return {kind: kinds.count(kind) for kind in ("holds", "does not hold", "not settled")}
