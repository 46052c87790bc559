"""Write the HTML pages that the documentation links to, and on request the README's pictures of them.

    python docs/make_pages.py [--pictures]

``model-page.html`` comes from ``restt demo``, ``report.html`` from ``results/``. Pictures need Chromium, chromedriver,
selenium and Pillow (``pip install 'restt[dev,app]'``).
"""

from __future__ import annotations

import base64
import io
import shutil
import sys
import tempfile
from pathlib import Path

from restt._common.files import write_bytes_atomic
from restt_app import demo
from restt_paper.commands import write_report

HERE = Path(__file__).parent
WIDTH = 1180
MARGIN = 16  # above a section the one before it still shows
COLOURS = 128  # of a picture: drawn ones need no more, and a third of the bytes
# Picture -> its page, the element it begins above, and its height.
PICTURES = {
    "model-page.png": ("model-page.html", "explorer", 880),
    "report.png": ("report.html", "table2", 790),
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        demo.run(folder)
        shutil.copyfile(Path(folder) / "page.html", HERE / "model-page.html")
    write_report(HERE.parent / "results", HERE / "results.md", HERE / "report.html")
    if "--pictures" in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as profile:
            draw(profile)


def draw(profile: str) -> None:
    """Take the pictures with a browser that keeps nothing."""
    from PIL import Image
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "hide-scrollbars", f"user-data-dir={profile}"):
        options.add_argument(f"--{flag}")
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        size = {"width": WIDTH, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        for name, (page, anchor, height) in PICTURES.items():
            browser.get((HERE / page).as_uri())
            top = browser.execute_script("return document.getElementById(arguments[0]).offsetTop", anchor)
            clip = {"x": 0, "y": top + MARGIN, "width": WIDTH, "height": height, "scale": 1}
            shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
            picture, buffer = Image.open(io.BytesIO(base64.b64decode(shot["data"]))), io.BytesIO()
            picture.convert("RGB").quantize(COLOURS).save(buffer, format="PNG", optimize=True)
            write_bytes_atomic(HERE / "images" / name, buffer.getvalue())
    finally:
        browser.quit()


if __name__ == "__main__":
    main()
