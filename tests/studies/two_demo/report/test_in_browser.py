"""The report in a real browser: it loads without a complaint, every figure shows, nothing sticks out sideways."""

import shutil

import pytest

from lerobot_policy_quantile.studies.two_demo import records
from lerobot_policy_quantile.studies.two_demo.records import load_study
from lerobot_policy_quantile.studies.two_demo.report.study_page import make_report
from tests.support.browser import open_browser

pytestmark = pytest.mark.browser

DECODED = """Promise.all([...document.images].map(image => {
    image.loading = 'eager'; return image.decode().then(() => image.naturalWidth, () => 0)}))"""
PANELS = """[...document.querySelectorAll('svg[role=img]')].map(panel => {
    const box = panel.getBoundingClientRect(); return Math.min(box.width, box.height)})"""
PLAYS = """Promise.all([...document.querySelectorAll('video')].map(video => new Promise(done => {
    const told = () => done([video.videoWidth, video.duration]);
    if (video.readyState > 0) return told();
    video.onloadedmetadata = told; video.onerror = () => done([0, 0]); video.load()})))"""
SMALLEST_TEXT = """Math.min(...[...document.querySelectorAll('svg[role=img] text')].map(
    text => parseFloat(getComputedStyle(text).fontSize) * Math.hypot(text.getScreenCTM().a, text.getScreenCTM().b)))"""
STICKING_OUT = """[...document.querySelectorAll('body *')].filter(element => {
    const box = element.getBoundingClientRect();
    return box.right > innerWidth + 1 && !element.closest('.scroll, .panels.many')}).map(e => e.outerHTML)"""


@pytest.fixture(scope="module")
def browser():
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(study_folder, tmp_path_factory):
    return make_report(load_study(study_folder)).write(tmp_path_factory.mktemp("page"))


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (360, True)])
def test_the_report_at_this_width(browser, page, width, dark):
    browser.open(page.as_uri(), width, dark=dark)
    sizes = browser.run(DECODED)
    assert len(sizes) > 20
    assert min(sizes) > 0
    panels = browser.run(PANELS)
    assert len(panels) > 60
    assert min(panels) > 100
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run(STICKING_OUT) == []
    assert browser.run(SMALLEST_TEXT) >= 9
    if not dark:
        shot = page.with_name(f"{width}.png")
        browser.screenshot(shot)
        assert shot.stat().st_size > 100_000
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]


def test_videos_can_be_played(browser, page):
    browser.open(page.as_uri(), 1280)
    found = browser.run(PLAYS)
    assert len(found) >= 6
    for width, seconds in found:
        assert width == 64
        assert seconds > 1


def test_a_scheme_changes_the_ground_and_the_ink(browser, page):
    seen = []
    for dark in (False, True):
        browser.open(page.as_uri(), 800, dark=dark)
        seen.append(
            browser.run("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")
        )
    assert seen == [["rgb(255, 255, 255)", "rgb(27, 36, 48)"], ["rgb(22, 27, 34)", "rgb(232, 235, 240)"]]


def test_an_unfinished_report_is_as_clean(browser, study_folder, tmp_path):
    folder = shutil.copytree(study_folder, tmp_path / "study")
    for arm in ("embedded", "embedded+obstacle"):
        shutil.rmtree(folder / arm / "seed0")
        (folder / arm / records.JOURNAL).unlink()
    browser.open(make_report(load_study(folder)).write(folder).as_uri(), 390)
    assert browser.run("document.querySelector('#missing').innerText").count("\n") > 4
    assert browser.run("document.documentElement.scrollWidth") <= 390
    assert browser.complaints() == []


def test_the_looking_itself_sees_what_is_wrong(browser, tmp_path):
    """The twin: a page with a broken picture, a wide box, an error and a request for another file."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<!doctype html><meta name="viewport" content="width=device-width"><img src="data:image/png;base64,AA" alt="x">'
        '<img src="missing.png" alt="y"><div style="width:2000px">wide</div><script>console.error("no")</script>'
    )
    browser.open(bad.as_uri(), 390)
    assert browser.run(DECODED) == [0, 0]
    assert browser.run(STICKING_OUT)
    assert browser.run("document.documentElement.scrollWidth") > 390
    assert any("console error" in words for words in browser.complaints())
    assert len(browser.requests()) == 2
