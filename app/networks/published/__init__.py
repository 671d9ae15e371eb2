"""The networks of arXiv:2605.06729 as they were run: frozen, no options, no diagnostics, faults included."""

from app.networks.published.baselines import PublishedDDL, PublishedGPT, PublishedJPmHC, PublishedMHC
from app.networks.published.edelta import PublishedEDelta, PublishedEDeltaStream, PublishedEDeltaToken
from app.networks.published.probes import PublishedDDLProbe, PublishedEDeltaProbe, PublishedJPmHCProbe

__all__ = [
    "PublishedDDL",
    "PublishedDDLProbe",
    "PublishedEDelta",
    "PublishedEDeltaProbe",
    "PublishedEDeltaStream",
    "PublishedEDeltaToken",
    "PublishedGPT",
    "PublishedJPmHC",
    "PublishedJPmHCProbe",
    "PublishedMHC",
]
