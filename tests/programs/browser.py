"""Chromium without a window, driven through chromedriver, for the tests of pages."""

import contextlib
import re
import shutil
import tempfile
import time

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SECONDS = 180
"""The longest time to wait for a model."""


class Page:
    """A page in a browser; elements are given by CSS selectors.

    Args:
        driver: selenium's.
    """

    def __init__(self, driver):
        self.driver = driver

    def script(self, code, *values):
        return self.driver.execute_script(code, *values)

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def texts(self, selector):
        """The texts of all elements, as far as they are shown."""
        return [found.text for found in self.driver.find_elements("css selector", selector)]

    def content(self, selector):
        """The text of the first element, every character of it."""
        return self.script("return document.querySelector(arguments[0])?.textContent", selector)

    def type(self, selector, text, clear=False):
        found = self.find(selector)
        if clear:
            found.clear()
        found.send_keys(str(text))

    def click(self, selector):
        self.find(selector).click()

    def focus(self, selector):
        self.script("document.querySelector(arguments[0]).focus()", selector)

    def press(self, keys):
        """Keys as "Control+Enter", for what has the focus."""
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        names = {"Control": Keys.CONTROL, "Enter": Keys.ENTER, "Escape": Keys.ESCAPE, "ArrowRight": Keys.ARROW_RIGHT}
        *held, last = [names[key] for key in keys.split("+")]
        actions = ActionChains(self.driver)
        for key in held:
            actions.key_down(key)
        actions.send_keys(last)
        for key in held:
            actions.key_up(key)
        actions.perform()

    def active(self):
        """The element with the focus: its id, and its number among the tokens."""
        found = self.driver.switch_to.active_element
        return {"id": found.get_attribute("id"), "dataset": found.get_attribute("data-index")}

    def wait_for(self, selector, text):
        """The text of the first element, as soon as `text` is in it."""
        end = time.monotonic() + SECONDS
        while text not in (found := self.content(selector) or ""):
            assert time.monotonic() < end, f"{selector} has {found!r}, and not {text!r}"
            time.sleep(0.1)
        return found

    def errors(self):
        """The errors in the console so far: the status of answers that are errors, else what is said."""
        found = [line["message"] for line in self.driver.get_log("browser") if line["level"] == "SEVERE"]
        return [status[1] if (status := re.search(r"status of (\d+)", line)) else line for line in found]


@contextlib.contextmanager
def opened(address, folder, size=(1200, 900)):
    """A Page of an address; skips the test where there is no browser.

    Args:
        address: of the page.
        folder: for the browser's files.
        size: of the window, in pixels.
    """
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: see requirements-dev.txt")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver_program = shutil.which("chromedriver")
    if not program or not driver_program:
        pytest.skip("there is no Chromium with chromedriver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    profile = tempfile.mkdtemp(dir=folder)
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(driver_program))
    try:
        driver.get(address)
        yield Page(driver)
    finally:
        driver.quit()
