"""The page: its numbers, its files, and that it can be written at any moment."""

import dataclasses
import re

import pandas as pd
import pytest
import synthetic

from app.study import tables
from app.study.page import numeric, write
from app.study.verdicts import judge

CHROMIUM = "/usr/bin/chromium"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    results = synthetic.results()
    return results, write(results, tmp_path_factory.mktemp("page"))


def test_numbers_are_those_of_the_runs(page):
    results, path = page
    rows = results.runs[(results.runs["task"] == "mnist") & (results.runs["model"] == "z_plane")]
    mean, std = 100 * rows["test/acc"].mean(), 100 * rows["test/acc"].std(ddof=1)
    shown = f"{mean:.2f} % ± {std:.2f} % (5)"
    assert shown in path.read_text()
    assert shown in (path.parent / "report.md").read_text()
    table = pd.read_csv(path.parent / "tables" / "mnist.csv").set_index(["model", "metric"])
    found = table.loc[("z_plane", "test/acc")]
    assert (100 * found["mean"], 100 * found["std"], found["n"]) == pytest.approx((mean, std, 5))


def test_runs_that_diverged_count_as_trivial(page):
    results, path = page
    table = pd.read_csv(path.parent / "tables" / "mnist.csv").set_index(["model", "metric"])
    assert table.loc[("unit_normalise", "test/acc"), "mean"] == pytest.approx(0.1135)
    assert table.loc[("modrelu", "test/acc"), "n"] == 4  # a failed one does not
    assert tables.order(results, "mnist", "test/acc")[-1] == "unit_normalise"


def test_runs_are_counted_once(page):
    results, path = page
    done = results.runs[results.runs["task"].isin(list(results.study.tasks))]
    fits = len(done)
    calls = 3 * 5  # three measurements of five seeds
    assert f"Runs: {fits + calls}, of which {fits + calls - 6} done, 5 diverged, 1 failed" in path.read_text()


def test_conditions_stand_with_claims_that_fail_alone(page):
    results, path = page
    verdicts = judge(results)
    failed = {c.condition for n, c in results.study.claims.items() if verdicts[n].kind == "does not hold"}
    others = {c.condition for n, c in results.study.claims.items() if verdicts[n].kind != "does not hold"}
    assert failed - {""}
    assert others - {""}
    for text in (path.read_text(), (path.parent / "report.md").read_text()):
        assert text.count("It would hold with: ") == len(failed - {""})
    noted = pd.read_csv(path.parent / "tables" / "claims.csv")["would hold"].dropna()
    assert set(noted) == failed - {""}


def test_files(page):
    results, path = page
    html, text = path.read_text(), (path.parent / "report.md").read_text()
    for table in re.findall(r'id="table-([^"]+)"', html):
        frame = pd.read_csv(path.parent / "tables" / f"{table}.csv")
        assert len(frame)
        latex = (path.parent / "tables" / f"{table}.tex").read_text()
        assert "\\toprule" in latex
        assert not set(latex) & set("±×‖◄√")
    pictures = re.findall(r"\(figures/(.+?)\.svg\)", text)
    assert len(pictures) == html.count("<svg")
    assert len(set(pictures)) == len(pictures) > 6
    for name in pictures:
        assert (path.parent / "figures" / f"{name}.pdf").stat().st_size > 1000
        assert "currentColor" not in (path.parent / "figures" / f"{name}.svg").read_text()
    for claim in results.study.claims.values():
        assert claim.claim in text
    assert results.claims_hash in text
    assert "RuntimeError: no" in html
    assert 'class="yours"' in html


def test_nothing_comes_from_outside(page):
    _, path = page
    html = re.sub(r"xmlns(:\w+)?=\"[^\"]+\"|<metadata>.*?</metadata>", "", path.read_text(), flags=re.S)
    assert not re.search(r"(src|href)=\"(?!#)|@import|url\((?!#)", html)


@pytest.mark.parametrize("done", [0.0, 0.3])
def test_pages_of_parts(tmp_path, done):
    results = synthetic.results(done=done)
    assert write(results, tmp_path).stat().st_size > 5000
    empty = dataclasses.replace(
        results, runs=results.runs[:0], curves=results.curves[:0], tuning=pd.DataFrame()
    )
    assert write(empty, tmp_path / "empty").is_file()
    nothing = dataclasses.replace(empty, runs=pd.DataFrame())
    assert write(nothing, tmp_path / "nothing").is_file()


def test_what_happened(page):
    results, _ = page
    about = results.study.tasks["mnist"]
    words = {
        "trains": [0.5, 0.8, 0.9],
        "chance": [0.11, 0.1135, 0.1],
        "collapsed": [0.6, 0.8, 0.11],
        "fell back": [0.6, 0.8, 0.6],
        "slow": [0.2, 0.3, 0.4],
    }
    for word, values in words.items():
        assert tables.course(pd.Series(values).to_numpy(), about) == word
    assert tables.happened(results, "mnist", "unit_normalise") == "diverged (not finite)"
    assert "failed" in tables.happened(results, "mnist", "modrelu")


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_in_a_browser(page, width, scheme):
    playwright = pytest.importorskip("playwright.sync_api")
    _, path = page
    asked: list[str] = []
    with playwright.sync_playwright() as start:
        browser = start.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        tab = context.new_page()
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(path.as_uri())
        tab.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert asked == [path.as_uri()]
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        for kind in ("figure svg", ".box table", ".claim"):
            shown = tab.locator(kind)
            assert shown.count() > 5
            for number in range(shown.count()):
                box = shown.nth(number).bounding_box()
                assert box is not None
                assert box["width"] > 100
                assert box["height"] > 20
        ink = tab.evaluate("getComputedStyle(document.querySelector('figure svg')).color")
        paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        light = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (ink, paper)]
        assert (light[0] < light[1]) == (scheme == "light")
        assert abs(light[0] - light[1]) > 400
        browser.close()


def test_published_values_stand_beside_ours(page):
    results, _ = page
    table = tables.task_table(results, "mnist").set_index("model")
    row = table.loc["(published for: published settings, real start)"]
    assert (row["test/acc, last"], row["train/acc"]) == ("96.89 %", "98.34 %")
    assert not [name for name in tables.task_table(results, "gradients")["model"] if "published for" in name]


def test_names_stand_left_whatever_they_begin_with():
    frame = pd.DataFrame({"model": ["1-Lipschitz", "3 layers"], "value": ["1", "2"]})
    assert not numeric(frame, "model")
    assert numeric(frame, "value")
