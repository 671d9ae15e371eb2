"""Keeps advertisements and notes about others' internals off the screen; warnings of substance stay."""

import logging
import sys
import warnings

ADVERTS = ("💡 Tip",)
NOTES = (
    r".*LeafSpec.*",
    r".*does not have many workers.*",
    r".*lightning\.fabric.* is deprecated.*",
    r".*Experiment logs directory .* exists and is not empty.*",  # claimed by making it
    r".*The dirpath has changed from.*",  # evaluation has a folder of its own
    r".*Checkpoint directory .* exists and is not empty.*",
)


def wanted(record: logging.LogRecord) -> bool:
    """Returns whether a log record is no advertisement."""
    return not record.getMessage().lstrip().startswith(ADVERTS)


def silence() -> None:
    """Installs the filters; calling it again changes nothing."""
    for name in ("lightning.pytorch.utilities.rank_zero", "lightning.fabric.utilities.rank_zero"):
        logging.getLogger(name).addFilter(wanted)
    for name in ("lightning.pytorch", "lightning.fabric"):
        for handler in logging.getLogger(name).handlers:
            if type(handler) is logging.StreamHandler:  # Lightning's; a file's handler is one too
                # Notes: stderr is for what went wrong. setStream would flush a stream that may be closed.
                handler.stream = sys.stdout
    for note in NOTES:
        warnings.filterwarnings("ignore", note)
