"""Sizes that the data determine: all networks take them under the same names, filled in from the data."""

import importlib
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from jsonargparse import Namespace


@runtime_checkable
class Sized(Protocol):
    """A datamodule that knows, as soon as it is made, what a sample and its prediction look like."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input, without the batch."""
        ...

    @property
    def num_outputs(self) -> int:
        """Number of classes, or of values to predict."""
        ...


@dataclass(frozen=True)
class Size:
    """One size: where the settings hold it and which attribute of the data it comes from."""

    target: str
    attribute: str

    def given(self, model: Namespace) -> Any:
        """Returns what the settings say themselves, None if nothing."""
        return model.get(self.target.removeprefix("model."))

    def value(self, data: Namespace | None, model: Namespace | None) -> Any:
        """Returns the size that the data have, or what the settings say where the data do not tell.

        Raises:
            ValueError: The settings say something else than the data.
        """
        given = None if model is None else self.given(model)
        source = None if data is None else make(data)
        if not isinstance(source, Sized):
            return given
        found = source.input_shape if self.attribute == "input_shape" else source.num_outputs
        plain = list(found) if isinstance(found, (tuple, list)) else found
        if given is not None and (list(given) if isinstance(given, (tuple, list)) else given) != plain:
            raise ValueError(
                f"{self.target} must be {plain}, the {self.attribute} of the data, got {given}: leave it out"
            )
        return plain


SIZES = (
    Size("model.init_args.network.init_args.input_shape", "input_shape"),
    Size("model.init_args.network.init_args.num_outputs", "num_outputs"),
    Size("model.init_args.num_classes", "num_outputs"),
)


def make(data: Namespace) -> object:
    """Makes the datamodule that the settings describe, which reads no data yet."""
    module, _, name = data.class_path.rpartition(".")
    arguments = data.get("init_args")
    return getattr(importlib.import_module(module), name)(**(arguments.as_dict() if arguments else {}))


def complete(dump: dict[str, Any], settings: Namespace) -> None:
    """Writes the sizes into dumped settings, which leave out what is linked.

    Checkpoints take their hyper-parameters from there, and could not rebuild a network without.
    """
    for size in SIZES:
        value = settings.get(size.target)
        if value is not None:
            *path, last = size.target.split(".")
            node = dump
            for key in path:
                node = node.setdefault(key, {})  # a network without arguments of its own has no init_args
            node[last] = value
