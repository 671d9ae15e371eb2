"""Configs that state a number of trained parameters state the right one, and rivals are of one size."""

import importlib
import re

import pytest
import torch
import yaml

from app import configs
from app.networks.matching import trained_parameters

RIVALS = (
    *("edelta", "edelta_cayley", "edelta_reflection", "edelta_two_reflections"),
    *("gpt", "ddl", "hc", "mhc", "krom_hc", "ohc", "jpmhc"),
)


def stated(config: str) -> int:
    found = re.search(r"# ([\d,]+) trained parameters", configs.locate(config).read_text())
    assert found, config
    return int(found[1].replace(",", ""))


@pytest.mark.parametrize("name", RIVALS)
def test_rivals_are_of_one_size_within_two_percent(name: str) -> None:
    network = yaml.safe_load(configs.locate(f"model/{name}").read_text())["model"]["init_args"]["network"]
    module, _, kind = network["class_path"].rpartition(".")
    with torch.device("meta"):
        made = getattr(importlib.import_module(module), kind)((255, 16), 16, **network["init_args"])
    assert trained_parameters(made) == stated(f"model/{name}")
    assert trained_parameters(made) == pytest.approx(stated("model/edelta"), rel=0.02)
