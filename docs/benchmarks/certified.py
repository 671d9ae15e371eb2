"""Clean, certified and attacked accuracy of a certified run, side by side.

python docs/benchmarks/certified.py runs/z_plane_mnist_certified/version_0 --root=data
"""

import math
from pathlib import Path

import torch
from jsonargparse import auto_cli
from rich.console import Console
from rich.progress import track
from rich.table import Table

from app.cli import build
from app.maths.attack import projected_gradient


def main(run: Path, root: str | None = None, samples: int = 10_000, steps: int = 40) -> None:
    """Prints the table.

    Args:
        run: Folder of a fit, with config.yaml and checkpoints/best.ckpt.
        root: Folder of the data, if it is not where it was.
        samples: Test images to use, the first ones.
        steps: Steps of the attack.
    """
    module, data = build(str(run / "config.yaml"), *([f"--data.init_args.root={root}"] if root else []))
    state = torch.load(run / "checkpoints/best.ckpt", map_location="cpu", weights_only=True)
    module.load_state_dict(state["state_dict"])
    network = module.network.eval()
    data.prepare_data()
    data.setup("test")
    bound = float(network.lipschitz_bound()) * data.input_lipschitz
    radii = module.certified_radii
    seen = correct = 0
    certified, attacked, broken = ([0] * len(radii) for _ in range(3))
    batches = list(data.test_dataloader())
    for batch in track(batches, description="attacking"):
        if seen >= samples:
            break
        x, y = data.on_after_batch_transfer(batch, 0)
        with torch.no_grad():
            z = network(x)
            rivals = z.scatter(-1, y[:, None], float("-inf")).amax(-1)
            margin = z.gather(-1, y[:, None])[:, 0] - rivals
        seen += len(y)
        correct += int((margin > 0).sum())
        for i, radius in enumerate(radii):
            held = margin > math.sqrt(2) * bound * radius
            # Radii are those of raw images, which the normalisation stretches.
            moved = projected_gradient(network, x, y, radius * data.input_lipschitz, steps)
            with torch.no_grad():
                survived = network(moved).argmax(-1) == y
            certified[i] += int(held.sum())
            attacked[i] += int(survived.sum())
            broken[i] += int((held & ~survived).sum())
    table = Table(title=f"{run}: {seen} test images, Lipschitz bound {bound:.6f}, clean {correct / seen:.2%}")
    for heading in ("radius", "certified", f"under attack ({steps} steps)", "certificates broken"):
        table.add_column(heading, justify="right")
    for radius, *counts, wrong in zip(radii, certified, attacked, broken, strict=True):
        table.add_row(f"{radius:.3f}", *(f"{count / seen:.2%}" for count in counts), str(wrong))
    Console().print(table)


if __name__ == "__main__":
    auto_cli(main)
