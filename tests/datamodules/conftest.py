from types import SimpleNamespace

import pytest


@pytest.fixture
def one_of():
    """Makes a stand-in for the trainer of one of several ranks."""

    def trainer(rank: int, world_size: int, training: bool = False) -> SimpleNamespace:
        progress = SimpleNamespace(current=SimpleNamespace(processed=0))
        loop = SimpleNamespace(epoch_loop=SimpleNamespace(batch_progress=progress))
        precision = SimpleNamespace(convert_input=lambda x: x)
        return SimpleNamespace(
            global_rank=rank,
            world_size=world_size,
            training=training,
            overfit_batches=0.0,
            fit_loop=loop,
            precision_plugin=precision,
        )

    return trainer
