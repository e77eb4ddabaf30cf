"""Pages in a real browser: nothing is fetched, nothing runs, all is seen, on light and dark screens, on phones and on paper.

Run by `make test-browser`, which needs Chromium and installs the wheel for the last test. What it saw is in build/screenshots.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

import headcount
from headcount.pipelines.pages.release import release_page
from tests.called_jobs import called
from tests.fixed_key import fix_fresh_keys
from tests.golden import events
from tests.pipelines.pages.made import made_output

SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
FLAGS += " --disable-component-update --disable-sync"
COMPARED = "methods compared"  # which is the page of no release
# One of each kind of page, and what must be seen of it.
PAGES = {
    "estimates": ".fill",
    "events by country and day": ".fill",
    "metrics of items": ".fill",
    "metrics of a public domain": ".dot",
    "protected by day": ".warn",
    "the largest counts": ".point",
    "names of items, chosen": ".names li",
    "the top": ".names b",
    "users in all": ".cards .value",
    "quantiles": ".dot",
    "ranges": ".fill",
    "the bound alone": ".cards .value",
    "the shape, sorted": ".fill",
    "a property": ".cards .value",
    "a distribution, dense": ".point",
    COMPARED: ".line",
}
WIDE, PHONE = {"width": 1000, "height": 800}, {"width": 375, "height": 700}
# The luminance of a colour as WCAG 2 has it, and the contrast of each text to what is behind it.
CONTRAST = """
() => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const linear = v => v <= 10.3 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  let worst = 99;
  for (const node of document.querySelectorAll("main *, header *, footer *")) {
    if (![...node.childNodes].some(child => child.nodeType == 3 && child.textContent.trim())) continue;
    const style = getComputedStyle(node);
    const [a, b] = [light(parse(node.namespaceURI.endsWith("svg") ? style.fill : style.color)), light(behind(node))];
    worst = Math.min(worst, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return worst;
}
"""


@pytest.fixture(scope="module")
def browser():
    path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=FLAGS.split())
        yield found
        found.close()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    data = tmp_path_factory.mktemp("data")
    events.write(data)
    made = {}
    for job in PAGES:
        made[job] = tmp_path_factory.mktemp("page") / "out"
        if job == COMPARED:
            log = {"user": [k % 400 for k in range(4000)], "item": [k * k % 37 for k in range(4000)]}
            with pytest.MonkeyPatch.context() as patch:
                fix_fresh_keys(patch)  # a line of a figure that happens to be the same at each epsilon has no height
                found = headcount.rehearse(public_data=log, user="user", item="item", epsilon=[0.5, 1, 4], releases=2)
            found.save(made[job])
            (made[job] / "rehearse.html").rename(made[job] / "report.html")
            continue
        called(job, data, label="Pages seen on the site", period="2026-11")[0].save(made[job])
    return made


@pytest.fixture
def look(browser, folders):
    """look(job, ...): the page of a job in a window, with all that it asked for and complained about."""
    windows = []

    def opened(job, viewport=WIDE, scheme="light"):
        window = browser.new_context(viewport=viewport, color_scheme=scheme, java_script_enabled=True)
        windows.append(window)
        page = window.new_page()
        asked, complaints = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        address = (folders[job] / "report.html").as_uri()
        page.goto(address, wait_until="load")
        assert asked == [address], "a page fetches nothing but itself"
        assert complaints == []
        return page

    yield opened
    for window in windows:
        window.close()


def keep(page, job, kind):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{re.sub('[^a-z]+', '-', job)}-{kind}.png", full_page=True)


@pytest.mark.parametrize("job", PAGES)
def test_a_page_is_seen_light_and_dark(look, job):
    grounds = []
    for scheme in ("light", "dark"):
        page = look(job, scheme=scheme)
        seen = page.locator(f"main {PAGES[job]}").first
        assert seen.is_visible() and seen.bounding_box()["width"] > 0
        assert page.evaluate(CONTRAST) >= 4.5, "WCAG AA"
        grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        keep(page, job, scheme)
    assert grounds[0] == "rgb(255, 255, 255)" and sum(map(int, re.findall(r"\d+", grounds[1])[:3])) < 120


@pytest.mark.parametrize("job", PAGES)
def test_a_page_fits_a_phone(look, job):
    page = look(job, PHONE)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") == 375, "nothing stands out to the right"
    sizes = page.evaluate(
        "[...document.querySelectorAll('.chart text')].map(each => each.getBoundingClientRect().height)"
    )
    assert all(size >= 10 for size in sizes), "letters of charts can be read"
    keep(page, job, "phone")


def test_bars_are_as_long_as_their_numbers(look):
    page = look("estimates")
    bars = page.evaluate(
        "[...document.querySelectorAll('table.bars')[0].querySelectorAll('tbody tr')].map(row =>"
        " [row.querySelector('.fill').getBoundingClientRect().width, row.querySelector('.number').textContent])"
    )
    widths, counts = [width for width, _ in bars], [int(text.replace(",", "")) for _, text in bars]
    assert len(bars) == 20 and widths[0] > 200
    assert all(abs(width / widths[0] - count / counts[0]) < 0.01 for width, count in zip(widths, counts, strict=True))


def test_large_numbers_leave_room_for_long_names(browser, folders, tmp_path):
    content = release_page(made_output(tmp_path / "out", folders["estimates"], 3000, times=1e5))
    (tmp_path / "page.html").write_bytes(content)
    page = browser.new_page(viewport=WIDE)
    page.goto((tmp_path / "page.html").as_uri())
    heights = page.evaluate("[...document.querySelectorAll('table.bars tbody tr')].map(row => row.clientHeight)")
    assert max(heights[:20]) < 110, "names are broken into words, and not into letters"
    assert page.evaluate("document.querySelector('.fill').getBoundingClientRect().width") > 60
    keep(page, "large numbers", "light")
    page.close()


def test_what_is_folded_opens_without_script_and_on_paper(look):
    page = look("estimates")
    digest = page.locator(".digest").first
    assert not digest.is_visible()
    page.locator("details.last > summary").click()
    assert digest.is_visible()
    paper = look("estimates")
    paper.emulate_media(media="print")
    assert paper.locator(".digest").first.is_visible(), "a print has all of it"
    keep(paper, "estimates", "paper")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_prints(look, scheme):
    page = look("estimates", scheme=scheme)
    content = page.pdf(format="A4")
    (SCREENSHOTS / f"estimates-{scheme}.pdf").write_bytes(content)
    assert content.startswith(b"%PDF") and len(content) > 20_000
    page.emulate_media(media="print", color_scheme=scheme)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", "paper is white"


def test_no_script_would_run(browser, folders, tmp_path):
    """By the policy of a page, which the browser keeps: what somebody puts into one does nothing, and fetches nothing."""
    text = (folders["the top"] / "report.html").read_text()
    more = "<script>document.title = 'run'</script><img src='https://example.org/x.png' onerror='document.title = 1'>"
    (tmp_path / "page.html").write_text(text.replace("</main>", f"{more}</main>"))
    page, got, refused = browser.new_page(), [], []
    page.on("response", lambda response: got.append(response.url))
    page.on("console", lambda message: refused.append(message.text))
    page.goto((tmp_path / "page.html").as_uri(), wait_until="load")
    assert page.title() == "Pages seen on the site" and len(got) == 1
    assert any("Content Security Policy" in words for words in refused)
    page.close()


def test_the_installed_demo_from_an_empty_folder(installed, browser, tmp_path):
    """The wheel in an environment of its own, `headcount demo` where there is nothing, and its page as people open it."""
    assert not [*tmp_path.iterdir()]
    done = installed("demo", "--rows", "20000")
    assert done.returncode == 0, done.stderr
    address = re.search(r"^to look at: (.*)$", done.stdout, re.MULTILINE)[1]
    assert Path(address) == tmp_path / "demo" / "histogram" / "report.html"
    with browser.new_page(viewport=WIDE) as page:
        page.goto(Path(address).as_uri(), wait_until="load")
        assert page.locator("main .fill").first.is_visible()
        assert "epsilon" in page.inner_text("main")
        keep(page, "the installed demo", "light")
