"""A page of many runs leaves none out."""

import pandas as pd

from app.study import comparison


def test_curves_of_many_groups_are_all_drawn(tmp_path):
    folders = []
    for number in range(11):
        folder = tmp_path / "runs" / f"m{number}" / "version_0"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(f"experiment: m{number}\nseed_everything: 1\n", encoding="utf-8")
        pd.DataFrame({"step": [1, 2], "epoch": [0, 1], "val/acc": [0.5, 0.6]}).to_csv(
            folder / "metrics.csv", index=False
        )
        folders.append(folder)
    path = comparison.write(folders, tmp_path / "page")
    drawn = (path.parent / "figures" / "val_acc.svg").read_text()
    assert all(f">m{number}<" in drawn for number in range(11))
