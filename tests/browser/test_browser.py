"""What a user sees of a real run of each family, in a real browser.

Run with: python -m pytest -m browser
"""

import pytest

from app.__main__ import main
from tests.browser.board import CHROMIUM, Board, board, coloured

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="there is no /usr/bin/chromium"),
    pytest.mark.timeout(900),
]

NETWORK = "--model.init_args.network.init_args"
QUIET = "--trainer.enable_progress_bar=false --trainer.enable_model_summary=false --trainer.max_epochs=2"
RUNS = {
    "z_plane": f"--config z_plane_digits {NETWORK}.depth=6 {NETWORK}.width=32",
    "sigma_pi": f"--config model/sigma_pi_cnn --config data/digits {NETWORK}.width=8",
    "edelta": f"--config edelta_gyroscope {NETWORK}.depth=2 {NETWORK}.width=16 --data.init_args.time=24 "
    "--data.init_args.train_samples=320 --data.init_args.val_samples=64",
}
GROUPS = ("Health", "Z-Plane", "Sigma-Pi", "Residual operators", "Gradients by layer")
OWN = {"z_plane": "Z-Plane", "sigma_pi": "Sigma-Pi", "edelta": "Residual operators"}
HISTOGRAM = {"z_plane": "radius", "sigma_pi": "exponents", "edelta": "gamma"}
FIGURES = {
    "z_plane": ("bounded_fraction", "phasors", "weight_gradient_norm"),
    "sigma_pi": ("pi_share", "weight_gradient_norm"),
    "edelta": ("gamma_mean", "eigenvalues", "rollout_norm"),
}
NETWORKS = {"z_plane": "RetractedZPlaneMLP", "sigma_pi": "SigmaPiCNN", "edelta": "EDelta"}
GUIDED = {"z_plane": "bounded_fraction", "sigma_pi": "nonlinear_share", "edelta": "gamma_collapsed"}


@pytest.fixture(scope="module", params=RUNS)
def seen(request, tmp_path_factory):
    root = tmp_path_factory.mktemp(request.param)
    line = f"fit {RUNS[request.param]} {QUIET} --experiment {request.param} --trainer.default_root_dir={root}"
    assert main(line.split()) == 0
    with board(str(root)) as shown:
        yield request.param, shown
        assert shown.strangers() == []


def charts(page, group: str):
    """Cards of a group of the custom scalars that are on the page."""
    panel = page.locator("tf-category-paginated-view").filter(has_text=group).first
    return panel.locator("tf-custom-scalar-multi-line-chart-card, tf-custom-scalar-margin-chart-card")


def drawn(page, locator, least: int = 200) -> int:
    """Coloured pixels of an element once there are enough of them, else after the time is up."""
    count = 0
    for _ in range(40):
        count = coloured(locator)
        if count >= least:
            break
        page.wait_for_timeout(500)
    return count


def test_every_group_of_the_dashboard_is_there_and_has_lines(seen):
    family, shown = seen
    with shown.tab("#custom_scalars", height=4200) as page:
        page.locator("tf-custom-scalar-multi-line-chart-card").first.wait_for()
        for group in GROUPS:
            page.get_by_text(group, exact=True).first.wait_for()
        for group in ("Health", OWN[family], "Gradients by layer"):
            card = charts(page, group).first
            card.scroll_into_view_if_needed()
            assert drawn(page, card.locator("svg").first) >= 200, group


def card(page, tag: str):
    return page.locator("card-view:visible").filter(has=page.locator(f'tb-truncated-path[title="{tag}"]'))


def test_a_curve_is_drawn_and_a_tag_that_does_not_exist_is_not(seen):
    _, shown = seen
    with shown.tab("?tagFilter=%5Eval%2Floss%24#timeseries") as page:
        card(page, "val/loss").first.wait_for()
        assert drawn(page, card(page, "val/loss").first.locator(".series-view").first) >= 200
    with shown.tab("?tagFilter=no%2Fsuch%2Ftag#timeseries") as page:
        page.locator("mat-sidenav-content, main").first.wait_for()
        page.wait_for_timeout(5000)
        assert page.locator("card-view:visible").count() == 0


def test_a_histogram_over_time(seen):
    family, shown = seen
    with shown.tab("#histograms") as page:
        page.locator("vz-histogram-timeseries").first.wait_for()
        page.get_by_text(f"diagnostics/{HISTOGRAM[family]}/").first.wait_for()
        assert drawn(page, page.locator("vz-histogram-timeseries").first) >= 200


def test_figures(seen):
    family, shown = seen
    with shown.tab("#images", height=3000) as page:
        page.locator("tf-image-loader img").first.wait_for()
        for name in FIGURES[family]:
            loader = page.locator("tf-image-loader").filter(has_text=f"figures/{name}").first
            image = loader.locator("img").first
            image.wait_for()
            width = image.evaluate("async image => { await image.decode(); return image.naturalWidth }")
            assert width >= 250, name


def test_the_runs_row_among_the_hyper_parameters(seen):
    family, shown = seen
    with shown.tab("#hparams") as page:
        table = page.locator("tf-hparams-table-view")
        table.get_by_text(family).first.wait_for()
        # Of a lone run's settings TensorBoard ticks the first five; of many runs', those that differ.
        box = page.locator("paper-checkbox").filter(has=page.get_by_text("model.network", exact=True)).first
        if box.get_attribute("aria-checked") != "true":
            box.click()
        for word in ("model.network", NETWORKS[family], "final/"):
            table.get_by_text(word).locator("visible=true").first.wait_for()


def test_the_guide(seen):
    family, shown = seen
    with shown.tab("#text", height=2000) as page:
        loader = page.locator("tf-text-loader").first
        loader.get_by_text(f"diagnostics/{GUIDED[family]}", exact=True).first.wait_for()
        loader.get_by_text("what to do otherwise").first.wait_for()


def test_the_browser_test_can_fail(seen):
    """A group that nobody records is on the page and has no line."""
    family, shown = seen
    assert isinstance(shown, Board)
    other = "Residual operators" if family == "z_plane" else "Z-Plane"
    with shown.tab("#custom_scalars", height=4200) as page:
        page.locator("tf-custom-scalar-multi-line-chart-card").first.wait_for()
        page.wait_for_timeout(4000)
        chart = charts(page, other).first
        if chart.count():
            assert coloured(chart.locator("svg").first) < 200
