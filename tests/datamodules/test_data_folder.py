from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from datamodules import ImageFolder

COLOURS = {"blue": (0, 0, 255), "green": (0, 255, 0), "red": (255, 0, 0)}


def paint(folder: Path, count: int, shade: int = 0, size: tuple[int, int] = (12, 9)) -> None:
    folder.mkdir(parents=True)
    colour = COLOURS[folder.name]
    for i in range(count):
        pixels = tuple(min(c, 255 - shade - i) for c in colour)
        Image.new("RGB", size, pixels).save(folder / f"{i:02}.png")


@pytest.fixture
def flat(tmp_path):
    for name in COLOURS:
        paint(tmp_path / name, 20)
    return tmp_path


def test_a_flat_folder_is_split_in_three(flat):
    data = ImageFolder(str(flat), size=8, batch_size=6)
    assert tuple(data.input_shape) == (3, 8, 8)
    assert data.num_outputs == 3
    assert data.classes == ["blue", "green", "red"]
    data.prepare_data()
    data.setup("fit")
    assert data.test_set is None
    data.setup("test")
    parts = (data.train_set, data.val_set, data.test_set)
    assert [len(y) for _, y in parts] == [49, 5, 6]
    assert data.test_set[1].bincount().tolist() == [2, 2, 2]
    images = torch.cat([x for x, _ in parts])
    assert images.dtype == torch.uint8
    assert images.shape == (60, 3, 8, 8)
    assert len(images.flatten(1).unique(dim=0)) == 60
    for x, y in parts:
        assert (2 - x.float().mean((2, 3)).argmax(1)).equal(y)


def test_test_images_do_not_depend_on_the_seed(flat):
    sets = []
    for seed in (0, 1):
        data = ImageFolder(str(flat), seed=seed)
        data.setup()
        sets.append((data.test_set[0], data.val_set[0]))
    assert sets[0][0].equal(sets[1][0])
    assert not sets[0][1].equal(sets[1][1])


def test_given_splits_are_kept(tmp_path):
    for part, count, shade in (("train", 10, 0), ("val", 3, 50), ("test", 4, 100)):
        for name in COLOURS:
            paint(tmp_path / part / name, count, shade)
    data = ImageFolder(str(tmp_path))
    data.setup()
    assert [len(y) for _, y in (data.train_set, data.val_set, data.test_set)] == [30, 9, 12]
    assert data.val_set[0].amax((1, 2, 3)).max() == 205
    assert data.test_set[0].amax((1, 2, 3)).max() == 155


def test_a_missing_part_is_split_off_the_training_folder(tmp_path):
    for name in COLOURS:
        paint(tmp_path / "train" / name, 10)
    data = ImageFolder(str(tmp_path), val_fraction=0.2, test_fraction=0.2)
    data.setup()
    assert [len(y) for _, y in (data.train_set, data.val_set, data.test_set)] == [19, 5, 6]


def test_a_class_may_be_called_train(tmp_path):
    for name in ("red", "blue"):
        paint(tmp_path / name, 5)
    (tmp_path / "red").rename(tmp_path / "train")
    assert ImageFolder(str(tmp_path)).classes == ["blue", "train"]


def test_grey_images_and_constants_of_the_user(flat):
    data = ImageFolder(str(flat), size=5, channels=1, mean=[0.2], std=[0.1])
    data.setup("test")
    assert data.test_set[0].shape == (6, 1, 5, 5)
    assert data.input_lipschitz == pytest.approx(10)
    x, _ = data.on_after_batch_transfer(data.test_set, 0)
    torch.testing.assert_close(x, (data.test_set[0] / 255 - 0.2) / 0.1)


def test_images_are_cut_to_a_square_not_squeezed(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(3):
            pixels = np.zeros((10, 30, 3), np.uint8)
            pixels[:, 10:20] = 200  # the middle third
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.png")
    data = ImageFolder(str(tmp_path), size=10)
    data.setup("test")
    assert (data.test_set[0] == 200).all()


def test_unreadable_images_are_named_in_one_line(flat):
    whole = (flat / "red" / "03.png").read_bytes()
    for content in (b"", b"no image", whole[: len(whole) // 2]):
        (flat / "red" / "03.png").write_bytes(content)
        with pytest.raises(ValueError, match=r"^cannot read the image .*red/03\.png: ") as caught:
            ImageFolder(str(flat)).setup()
        assert "\n" not in str(caught.value)


def test_deep_images_are_refused_rather_than_cut_off(flat):
    Image.fromarray(np.full((8, 8), 3000, np.uint16)).save(flat / "red" / "03.png")
    with pytest.raises(ValueError, match=r"03\.png: more than 8 bits a channel$"):
        ImageFolder(str(flat)).setup()


def test_missing_folders_and_classes_are_found_at_construction(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"^no folder {tmp_path}/none$"):
        ImageFolder(str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match=f"^{tmp_path} has no subfolders: "):
        ImageFolder(str(tmp_path))


def test_an_empty_class_and_an_unknown_one_are_named(flat):
    (flat / "white").mkdir()
    (flat / "white" / "notes.txt").write_text("")
    with pytest.raises(FileNotFoundError, match=f"^no images in {flat}/white "):
        ImageFolder(str(flat)).setup("fit")
    root = flat / "split"
    paint(root / "train" / "red", 5)
    paint(root / "test" / "blue", 5)
    with pytest.raises(ValueError, match=f"^{root}/test has a class that {root}/train lacks: blue$"):
        ImageFolder(str(root)).setup("test")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size must be at least 1, got 0"),
        ({"channels": 4}, "channels must be 1 or 3, got 4"),
        ({"test_fraction": 1.5}, r"test_fraction must lie between 0 and 1, got 1\.5"),
        ({"mean": (0.1, 0.2)}, "mean and std must have 1 or 3 values, got 2 and 1"),
        ({"std": (0.0,)}, r"std must be positive, got \[0\.0\]"),
    ],
)
def test_bad_arguments_are_refused(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        ImageFolder(str(tmp_path), **arguments)
