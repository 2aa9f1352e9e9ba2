"""The page in a real browser, which is skipped where there is none."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
pytest.importorskip("starlette", reason="the extra 'page' is not installed")
pytest.importorskip("selenium", reason="selenium is not installed")

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service

from spark.progresses import BASE, progress
from thetajoin.jobs.page import Drawn, Page, Picture

EVIL = "<img src=x onerror=document.title='owned'></pre><script>document.title='owned'</script>"
CHARTS = 8


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("Chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    words = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
    for word in (*words, "--window-size=1400,1000"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    try:
        made = webdriver.Chrome(options=options, service=Service(driver))
    except WebDriverException as error:
        pytest.skip(f"Chromium does not start: {str(error).splitlines()[0]}")
    made.set_page_load_timeout(60)
    yield made
    made.quit()


@pytest.fixture
def page() -> Iterator[Page]:
    picture = Picture(
        title=f"job {EVIL}",
        query=f"SELECT '{EVIL}'",
        condition=f"inner join on {EVIL}",
        routing=f"hash of {EVIL}: one copy of each row",
        sources=(Drawn(EVIL, "/data/dc1"), Drawn("b", "/data/dc2")),
        sink=EVIL,
        interval=2.0,
        text=EVIL,
    )
    made = Page(picture, port=0).start()
    yield made
    made.stop()


def until(true: Callable[[], Any], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "the page did not get there"
        time.sleep(0.1)


def text(browser: Any, what: str) -> str:
    found = browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent).join('|')",
        what,
    )
    return str(found).replace("\u00a0", " ")


def complaints(browser: Any) -> list[str]:
    return [line["message"] for line in browser.get_log("browser") if line["level"] == "SEVERE"]


def test_numbers_charts_and_plan_are_shown_and_move(browser: Any, page: Page) -> None:
    browser.get(page.address)
    until(lambda: "waiting for the first micro-batch" in text(browser, ".chart"))
    page.feed.add(progress(0))
    for number in range(1, 30):
        page.feed.add(progress(number, units=BASE.units))
    until(lambda: "30 micro-batches" in text(browser, "#subtitle"))
    tiles = text(browser, ".tile")
    assert "512/s" in tiles  # 10,245 rows of the last ten, in 19.996 s
    assert f"{sum(1000 + n for n in range(30)):,} in all" in tiles
    assert "10 s" in tiles  # the watermark's lag
    assert "1.1 \u00d7" in tiles  # the busiest unit
    assert browser.execute_script("return document.querySelectorAll('.chart svg').length") == CHARTS
    lines = browser.execute_script(
        "return [...document.querySelectorAll('.chart path.one')].map(p => p.getAttribute('d'))"
    )
    assert len(lines) == CHARTS - 1  # late rows are bars
    assert all("NaN" not in line and line.count("L") > 20 for line in lines)
    assert "1e" not in text(browser, ".chart svg text")
    plan = text(browser, "#plan")
    assert "5,000 rows" in plan
    assert "12,926" in plan  # unit 1's matches
    before = text(browser, ".chart svg text")
    page.feed.add(progress(30, input_rows=90_000))
    until(lambda: text(browser, ".chart svg text") != before)
    assert complaints(browser) == []


def test_what_users_write_is_text(browser: Any, page: Page) -> None:
    page.feed.add(progress(0, sink=EVIL))
    page.feed.end(f"the query failed: {EVIL}")
    browser.get(page.address)
    until(lambda: "failed" in text(browser, "#status"))
    for place in ("#title", "#subtitle", "#errors", "#plan", "#text"):
        assert EVIL in text(browser, place)
    assert "owned" not in browser.title.replace(EVIL, "")
    assert browser.execute_script("return document.querySelectorAll('main img').length") == 0
    assert complaints(browser) == []


def test_history_survives_a_reload(browser: Any, page: Page) -> None:
    for number in range(12):
        page.feed.add(progress(number))
    browser.get(page.address)
    until(lambda: "12 micro-batches" in text(browser, "#subtitle"))
    browser.refresh()
    until(lambda: "12 micro-batches" in text(browser, "#subtitle"))
    until(lambda: "trigger" in text(browser, ".legend"))


@pytest.mark.slow
def test_ten_tabs_all_get_the_news_and_one_may_close(browser: Any, page: Page) -> None:
    """A browser opens six connections to a server, so ten tabs must not need ten."""
    page.feed.add(progress(0))
    browser.get(page.address)
    first = browser.current_window_handle
    tabs = [first]
    for _ in range(9):
        browser.switch_to.new_window("tab")
        browser.get(page.address)
        tabs.append(browser.current_window_handle)

    def all_say(words: str) -> None:
        for tab in tabs:
            browser.switch_to.window(tab)
            until(lambda: words in text(browser, "#subtitle"))

    try:
        page.feed.add(progress(1))
        all_say("2 micro-batches")
        browser.switch_to.window(first)  # the one that listens
        browser.close()
        tabs.remove(first)
        page.feed.add(progress(2))
        all_say("3 micro-batches")
        page.feed.add(progress(3))
        all_say("4 micro-batches")
    finally:
        for tab in tabs[1:]:
            browser.switch_to.window(tab)
            browser.close()
        browser.switch_to.window(tabs[0])


def test_an_end_is_shown_and_stays_when_the_server_is_gone(browser: Any, page: Page) -> None:
    page.feed.add(progress(0))
    browser.get(page.address)
    until(lambda: "waiting" in text(browser, "#status"))  # its last micro-batch is of 2023
    page.feed.end(None)
    page.stop()
    until(lambda: text(browser, "#status") == "ended")
    time.sleep(1)
    assert "1,000 in all" in text(browser, ".tile")
    browser.get_log("browser")


def test_light_and_dark(browser: Any, page: Page) -> None:
    browser.get(page.address)
    until(lambda: "job" in text(browser, "#title"))

    def back() -> str:
        script = "return getComputedStyle(document.body).backgroundColor"
        return str(browser.execute_script(script))

    before = back()
    browser.find_element("id", "theme").click()
    assert back() != before
    browser.refresh()
    until(lambda: back() != before)  # the choice is kept
    browser.find_element("id", "theme").click()
    assert back() == before
