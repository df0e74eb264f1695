"""The report in headless Chromium: quiet, offline, narrow, operable by keyboard, deaf to hostile names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import browser, find_browser, messages_of, requests_of, show
from html_material import HOSTILE, full_material, full_run

from autotune.report.html.compose import compose
from autotune.report.html.page import render


@pytest.fixture(scope="module")
def page(from_trace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    find_browser()
    folder = tmp_path_factory.mktemp("page")
    material = full_material(full_run(from_trace, folder / "at-20261129-120000-full"))
    target = folder / "report.html"
    target.write_text(render(compose(material)), encoding="utf-8")
    return target


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (360, False)])
def test_a_page_is_quiet_offline_drawn_and_as_wide_as_the_window(
    driver: Any, page: Path, width: int, dark: bool
) -> None:
    show(driver, page, width=width, dark=dark)
    assert [line for line in driver.get_log("browser") if line["level"] in ("SEVERE", "WARNING")] == []
    assert {url.split(":", 1)[0] for url in requests_of(driver)} <= {"file", "data"}
    drawn, figures, wide, inner = driver.execute_script(
        "const plots = document.querySelectorAll('.plot');"
        "return [plots.length, document.querySelectorAll('.plot .main-svg').length > 0,"
        " document.documentElement.scrollWidth, innerWidth]"
    )
    assert drawn >= 10 and figures and wide <= inner == width
    empty = driver.execute_script(
        "return [...document.querySelectorAll('.plot')].filter(p => !p.querySelector('svg')).map(p => p.id)"
    )
    assert empty == []
    over = driver.execute_script(
        "return [...document.querySelectorAll('.plot')].filter(p => p.scrollWidth > p.clientWidth + 1)"
        ".map(p => p.id)"
    )
    assert over == []


def test_no_part_of_a_page_is_cut_off_on_a_phone_with_everything_open(driver: Any, page: Path) -> None:
    show(driver, page, width=360)
    wide = driver.execute_script(
        "document.querySelectorAll('details').forEach(d => { d.open = true; });"
        "return document.documentElement.scrollWidth"
    )
    assert wide <= 360


def test_figures_have_a_name_and_their_numbers_beside_them(driver: Any, page: Path) -> None:
    show(driver, page, width=1200)
    figures = driver.execute_script(
        "return [...document.querySelectorAll('figure')].map(f => { const p = f.querySelector('.plot');"
        " const rows = f.querySelectorAll('tbody tr').length;"
        " return [p.getAttribute('role'), p.getAttribute('aria-label'), rows,"
        " document.getElementById(f.getAttribute('aria-labelledby')).textContent] })"
    )
    assert figures
    for role, label, rows, title in figures:
        assert role == "img" and len(label) > 20 and rows > 0 and title.strip()
    landmarks = driver.execute_script(
        "return ['header','nav','main','footer','h1'].map(t => document.querySelectorAll(t).length)"
    )
    assert landmarks == [1, 1, 1, 1, 1]
    ids = driver.execute_script(
        "return [...document.querySelectorAll('[id]:not(svg *):not(style)')].map(e => e.id)"
    )
    assert len(ids) == len(set(ids))


def test_the_keyboard_reaches_every_section(driver: Any, page: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    show(driver, page, width=1200)
    focus = (
        "const e = document.activeElement; const s = e.closest('section');"
        "return [e.className || e.tagName, e.getAttribute('href') || '', s ? s.id : '',"
        " getComputedStyle(e).outlineStyle, e.tagName]"
    )
    reached, first, links, unseen = set(), None, [], []
    for _ in range(400):
        ActionChains(driver).send_keys(Keys.TAB).perform()
        name, link, section, outline, tag = driver.execute_script(focus)
        if tag == "BODY":
            break
        first = first or name
        if link.startswith("#"):
            links.append(link)
        if section:
            reached.add(section)
        if outline == "none":
            unseen.append(name)
    sections = driver.execute_script("return [...document.querySelectorAll('main section')].map(s => s.id)")
    assert first == "skip" and links[0] == "#main"
    assert {f"#{name}" for name in sections} <= set(links)
    with_controls = driver.execute_script(
        "return [...document.querySelectorAll('main section')].filter(s =>"
        " s.querySelector('summary, [tabindex], a, button')).map(s => s.id)"
    )
    assert set(with_controls) <= reached and unseen == []


def test_a_folded_section_opens_by_key_and_by_link(driver: Any, page: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    show(driver, page, width=1200)
    summary = driver.find_element("css selector", "#passed summary")
    assert driver.execute_script("return document.querySelector('#passed details').open") is False
    summary.send_keys(Keys.ENTER)
    assert driver.execute_script("return document.querySelector('#passed details').open") is True
    driver.execute_script(
        "document.querySelector('#passed details').open = false;"
        "document.querySelector('nav a[href=\"#passed\"]').click()"
    )
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, 10).until(
        lambda d: d.execute_script("return document.querySelector('#passed details').open")
    )


def test_the_theme_can_be_chosen_and_figures_follow(driver: Any, page: Path) -> None:
    show(driver, page, width=1200)
    colours = (
        "return [getComputedStyle(document.body).backgroundColor,"
        " document.querySelector('.plot text').style.fill]"
    )
    before = driver.execute_script(colours)
    driver.find_element("id", "theme").click()
    after = driver.execute_script(colours)
    assert before[0] != after[0] and before[1] != after[1]


def test_hostile_names_stay_text(driver: Any, page: Path) -> None:
    show(driver, page, width=1200)
    assert driver.title == "autotune: at-20261129-120000-full"
    assert (
        driver.execute_script("return document.querySelectorAll('img, iframe, object, a[href^=http]').length")
        == 0
    )
    assert driver.execute_script("return document.querySelectorAll('script').length") == 3
    text = driver.execute_script("return document.body.textContent")
    assert text.count(HOSTILE) >= 8
    hover = driver.execute_script(
        "return Plotly && [...document.querySelectorAll('#plot-timeline')].map(p =>"
        " p.data.flatMap(t => t.customdata).filter(c => c.includes('script')).length)"
    )
    assert hover[0] > 0
    label = driver.execute_script(
        "return [...document.querySelectorAll('#plot-ladder-figure .annotation-text')]"
        ".map(t => t.textContent).join(' ')"
    )
    assert "</script>" in label


def test_what_slips_into_the_page_could_still_not_run(driver: Any, page: Path) -> None:
    show(driver, page, width=1200)
    driver.execute_script(
        "const s = document.createElement('script'); s.textContent = \"document.title = 'owned'\";"
        "document.body.append(s); const i = document.createElement('img');"
        "i.src = 'https://example.com/x.png'; document.body.append(i)"
    )
    assert driver.title != "owned"
    driver.execute_async_script("setTimeout(arguments[0], 300)")
    said = " ".join(line["message"] for line in driver.get_log("browser"))
    assert "Content Security Policy" in said and "example.com" in said
    answered = [m for m in messages_of(driver) if m["method"] == "Network.responseReceived"]
    assert all(m["params"]["response"]["url"].startswith(("file:", "data:")) for m in answered)
