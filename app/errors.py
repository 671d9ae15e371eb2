"""Errors as one line: what was wrong, where, and what would be right."""


class RunFailed(RuntimeError):
    """A run that had begun to train did not end well."""


def one_line(error: BaseException) -> str:
    """Returns the message of an error without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__
