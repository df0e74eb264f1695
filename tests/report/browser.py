"""A headless Chromium for the report's tests: phone or desktop, light or dark, with everything it logs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

REQUIRED = "BROWSER_TESTS"
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)


def find_browser() -> tuple[str, str]:
    """Chromium and its driver. Without them the tests are skipped, or fail where BROWSER_TESTS=required."""
    program = next((path for name in _PROGRAMS if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if program and driver:
        return program, driver
    reason = "needs Chromium and its driver: apt-get install -y chromium chromium-driver"
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(f"{REQUIRED}=required, but the test {reason}")
    pytest.skip(reason)


@contextmanager
def browser(profile: Path) -> Iterator[Any]:
    """A driver with an empty profile that records console and network."""
    program, driver_program = find_browser()
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(driver_program))
    try:
        yield driver
    finally:
        driver.quit()


def show(driver: Any, page: Path, *, width: int, dark: bool = False) -> None:
    """Open a page at a width; returns when its figures are drawn."""
    from selenium.webdriver.support.ui import WebDriverWait

    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    driver.get_log("performance")  # what the browser's own first tab asked for
    driver.get_log("browser")
    driver.get(page.resolve().as_uri())
    drawn = "return document.documentElement.dataset.drawn"
    WebDriverWait(driver, 60).until(lambda d: d.execute_script(drawn) is not None)


def messages_of(driver: Any) -> list[dict[str, Any]]:
    """What the network did since the last call."""
    return [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]


def requests_of(driver: Any) -> list[str]:
    """Addresses the page asked for since it was opened."""
    sent = [m for m in messages_of(driver) if m["method"] == "Network.requestWillBeSent"]
    return [m["params"]["request"]["url"] for m in sent]
