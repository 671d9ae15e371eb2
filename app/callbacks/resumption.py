"""What Lightning's checkpoints lack: random states, half-done epoch means, and clean counters."""

import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor
from torchmetrics import Metric


def random_states() -> dict[str, Any]:
    """Returns the states of Python's, NumPy's and PyTorch's generators as plain data and tensors."""
    version, words, gauss = random.getstate()
    _, key, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002  what others draw from
    states = {
        "python": {"version": version, "words": torch.tensor(words), "gauss": gauss},
        "numpy": {
            "key": torch.from_numpy(np.asarray(key, dtype=np.int64)),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        },
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_random_states(states: Mapping[str, Any]) -> None:
    """Puts the generators where ``random_states`` found them."""
    python, numpy = states["python"], states["numpy"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    key = numpy["key"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", key, numpy["position"], numpy["has_gauss"], numpy["cached"]))  # noqa: NPY002
    torch.set_rng_state(states["torch"].cpu())
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"].cpu())


def metric_states(module: LightningModule) -> dict[str, Any]:
    """Returns what the module's metrics have gathered in this process, those that have seen anything."""
    return {
        name: {
            "updates": metric._update_count,
            "values": {k: _copied(getattr(metric, k)) for k in metric._defaults},
        }
        for name, metric in _metrics(module)
        if metric._update_count
    }


def set_metric_states(module: LightningModule, states: Mapping[str, Any]) -> None:
    """Gives the metrics back what they had gathered."""
    for name, metric in _metrics(module):
        if name not in states:
            continue
        metric.reset()
        for key, value in states[name]["values"].items():
            setattr(metric, key, _moved(value, metric.device))
        metric._update_count = states[name]["updates"]


def of_all_ranks(own: Any) -> list[Any]:
    """Returns what every process has, in order of rank: a collective."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [own]
    found: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(found, own)
    return found


def settle(fit_loop: dict[str, Any], epoch_done: bool) -> None:
    """Rewrites the counters of a fit into those of a batch that has not begun.

    A batch about to start counts as ready, which Lightning on loading takes for one that was interrupted.

    Args:
        fit_loop: State of the fit loop, changed in place.
        epoch_done: Whether the epoch is over, too; otherwise the next batch belongs to it.
    """
    batches = fit_loop["epoch_loop.batch_progress"]
    batches["is_last_batch"] = False
    for count in (batches["total"], batches["current"]):
        count["ready"] = count["started"] = count["processed"] = count["completed"]
    if epoch_done:
        optimizer = fit_loop["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]
        for progress in (batches, fit_loop["epoch_loop.scheduler_progress"], *optimizer.values()):
            progress["current"] = dict.fromkeys(progress["current"], 0)
        validation = fit_loop["epoch_loop.val_loop.batch_progress"]
        validation["total"] = dict.fromkeys(validation["total"], 0)


def load_positions(trainer: Trainer) -> None:
    """Tells the loaders where they were, also if Lightning has forgotten to.

    It does where a schedule has asked for the number of steps: then loaders were made before the checkpoint's
    counters were loaded, and are not made again.
    """
    fit = trainer.fit_loop
    fetcher = fit._data_fetcher
    if fit.restarting and fetcher is not None and fit._combined_loader_states_to_load:
        fit._load_combined_loader_states()
        iter(fetcher)  # a loader may read its state when it is asked for an iterator


def skip_recount(trainer: Trainer) -> None:
    """Keeps the logging step of a run that resumes where a validation may just have been, or an epoch begins.

    Lightning passes over that validation, but counts its batch once more.
    """
    fit = trainer.fit_loop
    fetcher = fit._data_fetcher
    if fit.restarting and fetcher is not None and fit.epoch_loop._should_check_val_fx(fetcher):
        fit.epoch_loop._batches_that_stepped -= 1


def _metrics(module: LightningModule) -> Iterator[tuple[str, Metric]]:
    for name, part in module.named_modules():
        if isinstance(part, Metric):
            yield name, part


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone().cpu()
    return [item.detach().clone().cpu() for item in value]


def _moved(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, Tensor) else [item.to(device) for item in value]
