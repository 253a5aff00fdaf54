"""The explorer in a real browser: filter, open, scrub, decode, compare, links, keys, phone, dark; no complaint."""

import numpy as np
import pytest

from lerobot_policy_quantile.explorer.page import single_page
from lerobot_policy_quantile.explorer.run_reading import few_episodes, read_run
from tests.explorer.conftest import open_page, serving, wait_in
from tests.support.explored_run import (
    EXECUTED,
    SHARED,
    STEPS,
    decoded,
    key,
    law_of,
    made_quantiles,
    made_trace,
    usual_keys,
    write_run,
)

pytestmark = pytest.mark.browser

SHOWN = "document.querySelectorAll('#rows .row').length"
TITLE = "document.getElementById('title').innerText"
MOMENT = "document.getElementById('moment').textContent"
FACTS = "document.getElementById('facts').textContent"
PIXEL = """(film => {
    const pen = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
    pen.drawImage(film, -2, -2);
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3)})(document.getElementById('film-a'))"""
STICKING_OUT = """[...document.querySelectorAll('body *')].filter(element => {
    const box = element.getBoundingClientRect();
    return box.right > innerWidth + 1 && !element.closest('.scroll, #table')}).map(e => e.outerHTML.slice(0, 200))"""


def link(episode, **rest) -> str:
    return "#" + "&".join(f"{name}={value}" for name, value in {"e": f"0/{episode.digest}", **rest}.items())


def follow(browser, address: str) -> None:
    """Go to a link within the page and wait until its episode is drawn."""
    place = address.split("e=")[1].split("&")[0]
    browser.run(f"delete document.body.dataset.drawn; location.hash = '{address}'")
    wait_in(browser, f"(document.body.dataset.drawn ?? '').startsWith('{place}')")


def set_input(browser, name: str, value: object) -> None:
    browser.run(
        f"{{ const i = document.getElementById('{name}'); i.value = '{value}'; i.dispatchEvent(new Event('input')) }}"
    )


def press(browser, name: str, **more: object) -> None:
    rest = "".join(f", {option}: {str(value).lower()}" for option, value in more.items())
    browser.run(
        f"dispatchEvent.call(document.body, new KeyboardEvent('keydown', {{ key: '{name}', bubbles: true{rest} }}))"
    )


def table_row(browser, name: str) -> list[float]:
    """Numbers of one line below the fans."""
    cells = browser.run(
        f"""[...[...document.querySelectorAll('#values tr')].find(r => r.cells[0].textContent === '{name}').cells]
            .slice(1).map(c => Number(c.textContent))"""
    )
    return [float(cell) for cell in cells]


@pytest.fixture
def page(browser, server):
    open_page(browser, server.address)
    yield browser
    assert browser.complaints() == []
    assert {address.split("/")[2] for address in browser.requests()} == {server.address.split("/")[2]}


def test_a_filter_leaves_rows_and_their_rates(page):
    assert page.run(SHOWN) == 18
    assert "12 of 18, 66.7 % (44 to 84)" in page.run("document.getElementById('rates').innerText")
    set_input(page, "decoder", SHARED)
    assert page.run(SHOWN) == 6
    set_input(page, "status", "failure")
    assert page.run(SHOWN) == 2
    set_input(page, "words", "index=5")
    assert page.run(SHOWN) == 1
    assert "0 of 1, 0.0 % (0 to 79)" in page.run("document.getElementById('rates').innerText")
    for name in ("decoder", "status", "words"):
        set_input(page, name, "")
    page.run("[...document.querySelectorAll('#head button')].find(b => b.textContent === 'index').click()")
    assert page.run("document.querySelector('#rows .row').children[2].textContent") == "0"
    page.run("[...document.querySelectorAll('#head button')].find(b => b.textContent === 'index').click()")
    assert page.run("document.querySelector('#rows .row').children[2].textContent") == "5"


def test_a_click_opens_an_episode_and_the_slider_moves_everything(page):
    set_input(page, "policy", "ours")
    set_input(page, "decoder", "median")
    page.run("document.querySelectorAll('#rows .row')[3].click()")
    wait_in(page, f"document.body.dataset.drawn === '0/{key(3).digest}'")
    assert "index 3" in page.run(TITLE)
    cursor = "document.querySelector('#timeline .cursor').style.transform"
    before, dot = page.run(cursor), page.run("document.querySelector('#above .dot').style.transform")
    red = page.run(PIXEL)[0]
    set_input(page, "step", 4 * EXECUTED + 1)
    wait_in(page, f"{MOMENT}.startsWith('step 21 of {STEPS - 1}')")
    assert page.run(cursor) != before
    assert page.run("document.querySelector('#above .dot').style.transform") != dot
    assert abs(page.run(PIXEL)[0] - red - 160) < 12  # the picture of the fifth replan
    assert page.run("document.getElementById('replan-title').textContent") == "Replan 5 of 6, at step 20"
    assert page.run("document.querySelectorAll('.js-plotly-plot').length") == 3  # redrawn, not drawn beside
    traces = page.run("document.querySelector('#timeline .plot').data.length")
    assert traces == 7 * 4 + 6 + 1 + 1  # fans and actions, ranks of six motion dimensions, spread, contacts


def test_an_episode_is_fetched_when_it_is_opened(page):
    def fetched():
        return {address.split("/data/episode/0/")[1] for address in page.requests() if "/data/episode/" in address}

    first = fetched()
    assert len(first) == 1
    follow(page, link(key(5)))
    assert fetched() == first | {key(5).digest}


def test_surprise_and_alarm_are_drawn_where_a_side_file_has_them(page):
    follow(page, link(key(0)))
    titles = page.run(
        "Object.entries(document.querySelector('#timeline .plot').layout)"
        ".filter(([k]) => k.startsWith('yaxis')).map(([, a]) => a.title.text)"
    )
    assert titles[-3:] == ["surprise", "alarm", "contacts"]
    wait_in(page, "[...document.querySelectorAll('#rows .row')].some(r => r.lastChild.textContent === 'at 20')")


def test_decoders_and_the_rank_slider_draw_what_python_computes(page):
    follow(page, link(key(1), t=7))
    quantiles, step, query = made_quantiles(1), 2, 1
    set_input(page, "law", "rank")
    for rank in (0.25, 0.9):
        set_input(page, "rank", rank)
        wait_in(page, f"document.getElementById('moment').textContent && {table_line('one rank')} !== ''")
        expected = law_of(quantiles[query])(rank)[step].numpy()
        wait_in(page, f"Math.abs({table_line('one rank')} - {expected[0]}) < 1e-6")
        np.testing.assert_allclose(table_row(page, "one rank")[:-1], expected[:-1], atol=1e-6)
    set_input(page, "law", "density")
    set_input(page, "seed", 5)
    python = decoded(quantiles, "density(rho=0.9)", 5)[query][0][step]
    wait_in(page, f"Math.abs({table_line('density-weighted')} - {python[0]}) < 1e-6")
    np.testing.assert_allclose(table_row(page, "density-weighted"), python, atol=1e-6)


def table_line(name: str) -> str:
    return (
        "(r => r ? r.cells[1].textContent : '')([...document.querySelectorAll('#values tr')]"
        f".find(r => r.cells[0].textContent === '{name}'))"
    )


def test_the_episodes_own_seed_gives_back_what_was_executed(page):
    episode = key(1, decoder=SHARED)
    follow(page, link(episode, t=17))
    set_input(page, "law", "shared")
    page.run("document.getElementById('own-seed').click()")
    executed = made_trace(episode).actions[17]
    wait_in(page, f"Math.abs({table_line('shared rank')} - {float(executed[0])}) < 1e-6")
    np.testing.assert_allclose(table_row(page, "shared rank"), table_row(page, "executed"), atol=2e-6)


def test_two_decoders_on_one_key_side_by_side(page):
    a, b = key(1), key(1, decoder=SHARED)
    follow(page, link(a))
    place = f"0/{b.digest}"
    page.run("delete document.body.dataset.drawn")
    set_input(page, "compare", place)
    wait_in(page, f"(document.body.dataset.drawn ?? '').endsWith('{place}')")
    assert not page.run("document.getElementById('film-b-figure').hidden")
    first, second = (np.asarray(made_trace(each).actions) for each in (a, b))
    parted = int(np.argmax(np.abs(first - second).max(axis=1) > 1e-6))
    assert f"actions differ from step {parted} on" in page.run("document.getElementById('parting').innerText")
    states = [np.asarray(made_trace(each).states)[:, :3] for each in (a, b)]
    apart = int(np.argmax(np.linalg.norm(states[0] - states[1], axis=1) > 0.01))
    page.run("document.querySelector('#parting button').click()")
    wait_in(page, f"{MOMENT}.startsWith('step {apart} ')")


def test_a_link_reopens_episode_moment_and_decoder(page, server):
    follow(page, link(key(4), t=13))
    set_input(page, "law", "window")
    set_input(page, "l", 0.3)
    wait_in(page, "location.hash.includes('name=window') && location.hash.includes('l=0.3')")
    address, values = page.run("location.href"), table_row(page, "window")
    open_page(page, address)
    wait_in(page, f"{MOMENT}.startsWith('step 13 ')")
    assert "index 4" in page.run(TITLE)
    wait_in(page, f"{table_line('window')} !== ''")
    assert table_row(page, "window") == values
    follow(page, link(key(3), name="density"))
    wait_in(page, "document.querySelector('[data-for=rho] output').textContent === '0.900'")


def test_keys_move_through_time_and_failures(page):
    follow(page, link(key(0), t=0))
    press(page, "ArrowRight")
    wait_in(page, f"{MOMENT}.startsWith('step 1 ')")
    press(page, "ArrowRight", shiftKey=True)
    wait_in(page, f"{MOMENT}.startsWith('step {EXECUTED} ')")
    press(page, "ArrowLeft")
    wait_in(page, f"{MOMENT}.startsWith('step {EXECUTED - 1} ')")
    press(page, " ")
    wait_in(page, f"{MOMENT}.startsWith('step {STEPS - 1} ')")  # played to its end
    failures = [episode for episode in sorted(usual_keys()) if episode.index % 3 == 2]
    for pressed, number in (("n", 0), ("n", 1), ("p", 0)):
        press(page, pressed)
        wait_in(page, f"document.body.dataset.drawn === '0/{failures[number].digest}'")
    assert "failure" in page.run(TITLE)
    assert failures[0].policy in page.run(FACTS)


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (360, True)])
def test_nothing_sticks_out_at_this_width(browser, server, width, dark):
    open_page(browser, server.address + link(key(0), t=7), width, dark=dark)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run(STICKING_OUT) == []
    ground = browser.run("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(22, 27, 34)" if dark else "rgb(255, 255, 255)")
    assert browser.complaints() == []


def test_policies_without_quantiles_open_and_say_so(page):
    follow(page, link(key(0, policy="plain")))
    assert page.run("document.getElementById('replan').hidden")
    assert "predicted no quantiles" in page.run("document.getElementById('problems').textContent")
    assert page.run("document.querySelector('#timeline .plot').data.length") > 6


def test_one_file_holds_everything(browser, usual_run, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(single_page(few_episodes([read_run(usual_run)], [], 4)))
    open_page(browser, file.as_uri())
    assert browser.run(SHOWN) == 4
    follow(browser, link(key(0), t=7, name="rank", rank=0.75))
    expected = float(law_of(made_quantiles(0)[1])(0.75)[2, 0])
    wait_in(browser, f"Math.abs({table_line('one rank')} - {expected}) < 1e-6")
    assert abs(browser.run(PIXEL)[0] - 40) < 12  # the picture of the second replan
    assert "not executed are drawn from 8 bits" in browser.run("document.getElementById('units').textContent")
    follow(browser, link(key(0), t=7, name="density", seed=5))
    expected = decoded(made_quantiles(0), "density(rho=0.9)", 5)[1][0][2]
    wait_in(browser, f"Math.abs({table_line('density-weighted')} - {expected[0]}) < 1e-6")
    np.testing.assert_allclose(table_row(browser, "density-weighted"), expected, atol=1e-6)
    assert browser.complaints() == []
    assert browser.requests() == [file.as_uri()]


def test_names_are_text_and_a_growing_run_is_followed(browser, tmp_path):
    hostile = key(0, policy="<img src=x onerror=window.harmed=1>", scene="</script><script>window.harmed=1</script>")
    folder = write_run(tmp_path / "run", [hostile])
    with serving(folder) as server:
        open_page(browser, server.address)
        assert "</script>" in browser.run(TITLE)
        assert browser.run("window.harmed === undefined")
        write_run(folder, [key(1)])
        wait_in(browser, f"{SHOWN} === 2")
        assert browser.complaints() == []
    file = tmp_path / "page.html"
    file.write_text(single_page([read_run(folder)]))
    open_page(browser, file.as_uri())
    assert browser.run("window.harmed === undefined")
    assert browser.complaints() == []


def test_an_interrupted_run_without_side_files_opens(browser, tmp_path):
    folder = write_run(tmp_path / "run", usual_keys(2))
    for path in (folder / "side").glob("*"):
        path.unlink()
    with serving(folder) as server:
        open_page(browser, server.address)
        assert browser.run(SHOWN) == 6
        assert "is missing" in browser.run("document.getElementById('problems').textContent")
        assert browser.complaints() == []
