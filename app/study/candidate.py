"""A user's own network or layer, put into a study beside the models it has."""

import dataclasses
import inspect

from app.errors import Mistake
from app.study.plan import Model, Study
from app.study.runs import SIZE
from app.study.work import locate

CLASS_PATH = "model.init_args.network.class_path"


def put_in(study: Study, path: str) -> tuple[Study, str]:
    """Returns the study with one more model, which gets the size, the tuning and the floors of the others.

    A class whose arguments include ``input_shape`` and ``num_outputs`` is a network; anything else is a
    layer, made as ``layer(features_in, features_out)`` or as the study's trunk makes its layers.

    Args:
        study: Any with the part ``network_candidate`` or ``layer_candidate``.
        path: Dotted path of the class.

    Returns:
        The study, and the new model's name.

    Raises:
        Mistake: There is no such class, or the study has no place for it.
    """
    made = locate(path)
    if not callable(made):
        raise Mistake(f"{path} must be a class of networks or layers, got {type(made).__name__}")
    arguments = inspect.signature(made).parameters
    is_network = {"input_shape", "num_outputs"} <= set(arguments)
    recipe = study.network_candidate if is_network else study.layer_candidate
    if recipe is None:
        kind = "network (with input_shape and num_outputs)" if is_network else "layer"
        raise Mistake(f"{study.name} has no place for a {kind} such as {path}")
    name = path.rpartition(".")[2]
    if name in study.models:
        raise Mistake(f"{study.name} has a model {name} already; give the class another name")
    key = CLASS_PATH if is_network else f"{SIZE}.{study.layer_argument}"
    sized = recipe.sized if not is_network or recipe.sized in arguments else ""
    model: Model = dataclasses.replace(
        recipe,
        label=f"{name} (yours)",
        settings={key: path, **recipe.settings},
        sized=sized,
        note=recipe.note or f"outside candidate {path}",
    )
    presets = {
        preset: dataclasses.replace(entry, models=[*entry.models, name] if entry.models else [])
        for preset, entry in study.presets.items()
    }
    return dataclasses.replace(study, models={**study.models, name: model}, presets=presets), name
