"""Study files: the shipped ones, and mistakes found before anything runs."""

import copy
import dataclasses
import json
from pathlib import Path

import pytest
import small
import yaml

from app import configs
from app.errors import Mistake
from app.study import plan, reading
from app.study.runs import base_settings, final_runs, grid, pairs, tuning_runs

SHIPPED = sorted((configs.SHIPPED / "studies").glob("*.yaml"))


def load(tmp_path: Path, content: dict) -> plan.Study:
    return reading.load(small.write(tmp_path, content))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_studies_are_whole(path):
    study = reading.load(path)
    assert {"quick", "cpu", "full"} <= set(study.presets)
    assert reading.restore(json.loads(json.dumps(dataclasses.asdict(study))), "copy") == study
    for preset in study.presets:
        assert list(pairs(study, preset)) or study.chosen(preset)[2]


def test_hash_is_of_the_claims_alone(tmp_path):
    first = load(tmp_path, small.STUDY)
    content = copy.deepcopy(small.STUDY)
    content["title"] = "Another title"
    assert load(tmp_path, content).claims_hash() == first.claims_hash()
    content["claims"]["better_than_chance"]["margin"] = 0.01
    assert load(tmp_path, content).claims_hash() != first.claims_hash()


@pytest.mark.parametrize(
    ("where", "value", "expected"),
    [
        (("tiltle",), "x", "a study has no part tiltle; did you mean title?"),
        (("title",), "", "title must be given"),
        (("reference",), "plein", "reference names no model: plein; did you mean plain?"),
        (("tasks", "digits", "better"), "up", "tasks.digits: better must be higher or lower, got up"),
        (("tasks", "digits", "metrik"), "x", "tasks.digits: there is no option metrik; did you mean metric?"),
        (("models", "plain", "tasks"), ["digit"], "names no task: digit; did you mean digits?"),
        (("models", "plain", "step"), 0, "models.plain.step must be at least 1, got 0"),
        (("models", "plain", "settings"), "depth", "settings must be a mapping, got 'depth'"),
        (("presets", "quick", "seeds"), [1, 1], "presets.quick.seeds must be distinct"),
        (("presets", "quick", "seeds"), [1000], "tuning.seed 1000 must be none of"),
        (
            ("presets", "quick", "settings_of"),
            {"plein": {}},
            "names no task or model: plein; did you mean plain?",
        ),
        (("presets", "quick", "tasks_of"), {"plein": []}, "names no model: plein; did you mean plain?"),
        (
            ("presets", "quick", "tasks_of"),
            {"plain": ["digit"]},
            "names no task: digit; did you mean digits?",
        ),
        (("presets", "quick", "settings_of"), {"plain": 1}, "settings_of must be a mapping"),
        (("claims", "better_than_chance", "models"), ["nobody"], "names no model: nobody"),
        (("claims", "better_than_chance", "against"), ["plain"], "either against or value"),
        (("claims", "better_than_chance", "margin"), -1, "margin must be at least 0"),
        (("claims", "better_than_chance", "kind"), "equal", "above it for equal, got 0.0"),
        (
            ("claims", "better_than_chance", "task"),
            "digit",
            "task or measurement: digit; did you mean digits?",
        ),
        (("models",), [], "models must be given"),
        (("models",), ["plain"], "models must map names to entries, got list"),
        (("models", "plain"), "plain", "models.plain must be a mapping, got 'plain'"),
    ],
)
def test_mistakes(tmp_path, where, value, expected):
    content = copy.deepcopy(small.STUDY)
    place = content
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    with pytest.raises(Mistake) as caught:
        load(tmp_path, content)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_study(tmp_path):
    with pytest.raises(Mistake, match="there is no study"):
        reading.load(tmp_path / "none.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")
    with pytest.raises(Mistake, match="is no study"):
        reading.load(broken)
    broken.write_text("- a")
    with pytest.raises(Mistake, match="must be a mapping"):
        reading.load(broken)


def test_a_preset_trains_a_model_on_fewer_tasks(tmp_path):
    content = copy.deepcopy(small.STUDY)
    content["tasks"]["again"] = content["tasks"]["digits"]
    content["models"]["other"] = content["models"]["plain"]
    content["presets"]["quick"]["tasks_of"] = {"other": ["again"]}
    found = sorted((task, model) for task, _, model, _ in pairs(load(tmp_path, content), "quick"))
    assert found == [("again", "other"), ("again", "plain"), ("digits", "plain")]


def test_settings_come_in_order(tmp_path):
    content = copy.deepcopy(small.STUDY)
    content["tasks"]["digits"]["settings"] = {"a": "task", "b": "task", "c": "task"}
    content["models"]["plain"]["settings"] = {"b": "model", "c": "model"}
    content["presets"]["quick"]["settings"] = {"c": "preset", "e": "preset", "f": "preset"}
    content["presets"]["quick"]["settings_of"] = {
        "plain": {"f": "model"},
        "digits": {"e": "task", "f": "task"},
    }
    study = load(tmp_path, content)
    found = base_settings(study, "quick", "digits", "plain", 7, {"d": "machine"})
    assert found == {
        "seed_everything": 7,
        "data.init_args.seed": 7,
        "a": "task",
        "b": "model",
        "c": "preset",
        "d": "machine",
        "e": "task",
        "f": "model",
    }


def test_every_tuned_model_gets_the_same_budget_and_the_test_set_stays_closed(tmp_path):
    content = copy.deepcopy(small.STUDY)
    content["models"] |= {"a": {**small.MODEL, "label": "a"}, "b": {**small.MODEL, "label": "b"}}
    study = load(tmp_path, content)
    runs = tuning_runs(study, "quick", {}, {})
    points = grid(study.tuning)
    for model in ("a", "b"):
        assert [run.point for run in runs if run.model == model] == points
    assert {run.kind for run in runs} == {"tune"}
    assert not {run.seed for run in runs} & set(study.presets["quick"].seeds)
    assert {run.model for run in final_runs(study, "quick", {}, {}, {})} == {"", "plain"}
    chosen = {("digits", "a"): points[1]}
    finals = [run for run in final_runs(study, "quick", {}, {}, chosen) if run.model == "a"]
    assert [run.seed for run in finals] == [1, 2, 3]
    assert {run.settings["model.init_args.optimizer.init_args.lr"] for run in finals} == {1e-3}


def test_arguments_are_a_command_line(tmp_path):
    study = load(tmp_path, small.STUDY)
    (run, *_) = [run for run in final_runs(study, "quick", {}, {}, {}) if run.kind == "fit"]
    assert run.arguments[:3] == ["fit", "--config=data/digits", "--config=model/relu_shallow"]
    assert "--trainer.max_epochs=1" in run.arguments
    assert yaml.safe_load(run.arguments[-1].partition("=")[2]) == 1
