"""The page in a real browser: it opens from disk, the filters work, hostile text stays inert."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalharness.report import write_report
from evalharness.types import CellKey
from tests.report.plant import BFCL, GSM8K, NLL, Plant, paired, plant_run

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None,
        reason="chromium and chromedriver are absent: apt-get install chromium chromium-driver",
    ),
]

NLL_MARGIN = {"nats_per_token": 0.01, "tail_nats": 0.5, "tail_share": 0.01}
PAYLOADS = (
    "<script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 2'>",
    '"><svg onload="window.pwned = 3"><a href="javascript:window.pwned=4">x</a>',
    "</pre></details></section></body><iframe src='https://example.org/'></iframe>",
    "{{ 7 * 7 }} {% raw %} <style>body { display: none }</style>",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x00 \x08\x08",
    "safe \u202egnp.exe\u202c \u2066\u2069 \ufeff end",
    "lone surrogate \ud800 in the middle",
    "x" * 1_000_000,
    "<link rel=stylesheet href='https://example.org/a.css'><base href='https://example.org/'>",
    "<meta http-equiv=refresh content='0;url=https://example.org/'>",
)


def hostile_answer(key: CellKey, index: int, outcome: str) -> str:
    """A payload that is another one for each case and arm."""
    payload = PAYLOADS[index % len(PAYLOADS)]
    return f"{outcome} by {key.arm}: {payload if index < len(PAYLOADS) else payload[:100]}"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a report whose model, cases and server all attack the reader."""
    run = plant_run(
        tmp_path_factory.mktemp("hostile") / "run",
        Plant(
            suites=(BFCL, GSM8K, NLL),
            margins={"bfcl": 0.1, "gsm8k": 0.1, "nll.decode": NLL_MARGIN},
            outcomes=paired(correct=60, wins=5, losses=20, arms=("moe",)),
            answers=hostile_answer,
            case_prefix="../../<img src=x onerror=window.pwned=5>\x1b[2J",
        ),
    )
    for file in run.glob("arms/moe/*/server.json"):
        facts = json.loads(file.read_text())
        facts["levels"]["moe"]["evidence"] = "<script>window.pwned = 6</script>\x1b[31m"
        facts["system_fingerprint"] = "\"'><script>window.pwned = 7</script>"
        file.write_text(json.dumps(facts))
    write_report(run)
    return run / "report"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Yield a headless Chromium that logs its console and its network."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = str(CHROMIUM)
    # no sandbox: CI containers run as root; the page is our own and must be inert anyway
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser: Any, report: Path) -> Any:
    """Open the page at desktop width, logs emptied."""
    browser.set_window_size(1280, 1000)
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(f"file://{report / 'index.html'}")
    return browser


def requests_of(browser: Any) -> set[str]:
    """Return every address asked since the last call."""
    messages = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    return {
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    }


def shown(browser: Any, selector: str) -> list[Any]:
    """Return the elements that are displayed."""
    script = (
        "return [...document.querySelectorAll(arguments[0])].filter(e => !e.closest('[hidden]'))"
    )
    found = browser.execute_script(script, selector)
    assert isinstance(found, list)
    return found


def choose(browser: Any, name: str, value: str) -> None:
    """Set a filter as a reader would."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    Select(browser.find_element(By.NAME, name)).select_by_visible_text(value)


def test_it_opens_from_disk_without_network_or_console_errors(page: Any, report: Path) -> None:
    assert requests_of(page) == {f"file://{report / 'index.html'}"}
    assert page.get_log("browser") == []
    assert page.execute_script("return document.querySelectorAll('svg[role=img] title').length") > 3


def test_hostile_text_is_inert(page: Any) -> None:
    for detail in page.find_elements("css selector", "details"):
        page.execute_script("arguments[0].open = true", detail)
    page.execute_script("document.querySelectorAll('.chip').forEach(e => e.click())")
    assert page.execute_script("return typeof window.pwned") == "undefined"
    counted = page.execute_script(
        "return ['img', 'iframe', 'object', 'embed', 'link', 'base', 'audio', 'video']"
        ".map(tag => document.getElementsByTagName(tag).length)"
    )
    assert counted == [0] * 8
    assert page.execute_script("return document.scripts.length") == 1
    assert page.execute_script("return document.styleSheets.length") == 1
    handlers = page.execute_script(
        "return [...document.querySelectorAll('*')].flatMap(e => [...e.attributes])"
        ".filter(a => a.name.startsWith('on') || /javascript:/i.test(a.value)"
        " || a.name === 'style').length"
    )
    assert handlers == 0
    assert page.get_log("browser") == []


def test_the_attacks_are_shown_as_text(page: Any) -> None:
    text = page.execute_script("return document.getElementById('flips').textContent")
    for payload in PAYLOADS[:5]:
        assert payload in text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text)
    assert r"\x1b[31mred" in text
    assert r"\u202egnp.exe" in text


def test_files_hold_no_control_characters_and_stay_small(report: Path) -> None:
    for name in ("index.html", "report.md"):
        text = (report / name).read_text(encoding="utf-8")
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text)
        assert len(text) < 8_000_000
    assert "<script>window" not in (report / "index.html").read_text()
    markdown = (report / "report.md").read_text()
    assert "<img" not in re.sub(r"`[^`]*`", "", markdown)


def test_the_policy_is_strict(report: Path) -> None:
    text = (report / "index.html").read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src &#39;none&#39;;")
    assert "unsafe" not in policy[1]
    assert "http:" not in policy[1]


def test_the_arm_filter(page: Any) -> None:
    choose(page, "arm", "moe")
    arms = {e.get_attribute("data-arm") for e in shown(page, "[data-row][data-arm]")}
    assert arms == {"moe"}
    assert "rows shown" in page.find_element("id", "shown").text
    page.find_element("css selector", "#filters button").click()
    page.execute_async_script("setTimeout(arguments[0], 20)")
    arms = {e.get_attribute("data-arm") for e in shown(page, "[data-row][data-arm]")}
    assert arms >= {"moe", "hc", "hc+moe"}


def test_suite_and_level_filters_together(page: Any) -> None:
    choose(page, "suite", "gsm8k")
    choose(page, "c", "4")
    rows = shown(page, "#results tbody tr[data-c]")
    found = {(r.get_attribute("data-suite"), r.get_attribute("data-c")) for r in rows}
    assert found == {("gsm8k", "4")}
    assert len(rows) == 3


def test_only_flips(page: Any) -> None:
    before = len(shown(page, "#results tbody tr[data-flips]"))
    page.find_element("name", "flips").click()
    rows = shown(page, "#results tbody tr[data-flips]")
    assert before == 12
    assert {row.get_attribute("data-arm") for row in rows} == {"moe"}
    assert len(rows) == 4


def test_both_raw_answers_are_a_click_away(page: Any) -> None:
    case = shown(page, "#flips details.case")[0]
    assert not case.find_element("css selector", "pre").is_displayed()
    case.find_element("tag name", "summary").click()
    texts = [pre.text for pre in case.find_elements("css selector", ".answers pre")]
    assert texts[0].startswith("correct by control") or texts[0].startswith("wrong by control")
    assert "by moe" in texts[1]


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_no_width_makes_the_page_scroll_sideways(page: Any, width: int) -> None:
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    wide = page.execute_script("return document.documentElement.scrollWidth")
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert wide <= width


def test_no_table_is_cut_on_paper(page: Any) -> None:
    # A4 landscape less its margins, at 96 pixels an inch
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 1031, "height": 700, "deviceScaleFactor": 1, "mobile": False},
    )
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    cut = page.execute_script(
        "return [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > "
        "document.documentElement.clientWidth).map(e => e.closest('section').id)"
    )
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert cut == []


def test_it_prints(page: Any) -> None:
    printed = page.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
    assert len(printed["data"]) > 50_000
