"""The report in a browser, on a desktop and a phone screen, used as a reader would."""

import csv
import re

import pytest
from playwright.sync_api import expect


@pytest.fixture(params=["demo", "signs"])
def page(request, opened, reports):
    return opened(reports[request.param])


def number(text):
    return float(re.search(r"[\d.]+", text).group())


def test_it_fits_the_screen_and_says_what_is_proven(page):
    width = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width[0] == width[1]
    expect(page.locator("h1")).to_contain_text("certified predictions")
    assert page.locator(".tile").count() == 5
    expect(page.locator("#guarantees")).to_contain_text("it is proven that nobody can change the prediction")
    for chart in page.locator(".chart").all():
        assert chart.get_attribute("role") == "img"
        assert len(chart.get_attribute("aria-label")) > 20
        assert chart.locator("svg").count() >= 1


def test_two_classes_have_one_curve_and_no_improvement(opened, reports):
    page = opened(reports["two"])
    expect(page.locator("#same")).to_contain_text("all elections elect the same class: DPA+ROE has the curve of DPA.")
    expect(page.locator("#improvement")).to_be_hidden()
    expect(page.get_by_role("heading", name="Improvement over plurality")).to_be_hidden()
    assert "Over plurality" not in page.locator("#summary").inner_text()
    page = opened(reports["demo"])
    expect(page.locator("#improvement")).to_be_visible()
    assert page.locator("#same").inner_text() == ""


def test_hovering_shows_values(page, screen):
    curves = page.locator("#curves")
    curves.scroll_into_view_if_needed()
    box = curves.bounding_box()
    x, y = box["x"] + box["width"] / 3, box["y"] + box["height"] / 3
    if screen == "phone":
        page.touchscreen.tap(x, y)
    else:
        page.mouse.move(x, y)
    tip = curves.locator("[aria-label='tip'] text")
    expect(tip).to_have_count(1)
    assert re.search(r"\d+ edits?: [\d.]+ %", tip.text_content())


def test_the_slider_tells_values_to_the_keyboard(page):
    slider = page.locator("#budget")
    slider.focus()
    page.keyboard.press("Home")
    expect(page.locator("#budget-out")).to_have_text("0")
    clean = [number(text.rsplit(":", 1)[1]) for text in page.locator("#readout span").all_inner_texts()]
    table = page.locator("#numbers tbody td:nth-child(2)").all_inner_texts()
    assert clean == pytest.approx([number(text) for text in table], abs=0.051)
    page.keyboard.press("ArrowRight")
    expect(page.locator("#budget-out")).to_have_text("1")


def test_methods_can_be_hidden(page):
    first = page.locator("#legend button").first
    lines = page.locator("#curves g[aria-label='line']").count()
    first.click()
    expect(first).to_have_attribute("aria-pressed", "false")
    assert page.locator("#curves g[aria-label='line']").count() == lines - 1


def test_the_dark_page(page):
    def brightness():
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(n) for n in re.findall(r"\d+", color)[:3])

    assert brightness() > 600
    page.locator("#theme").focus()
    page.keyboard.press("Enter")
    assert brightness() < 150
    expect(page.locator("#theme")).to_have_attribute("aria-pressed", "true")
    page.emulate_media(color_scheme="dark")
    page.reload()
    assert brightness() < 150


def test_filters_and_order(page):
    count = page.locator("#x-count")
    everything = int(number(count.inner_text()))
    items = page.locator("#x-list button")
    assert items.count() == everything
    page.select_option("#x-right", "wrong")
    wrong = items.count()
    assert 0 < wrong < everything
    assert all(text.startswith("✗") for text in items.all_inner_texts())
    page.select_option("#x-right", "right")
    assert items.count() == everything - wrong
    page.select_option("#x-sort", "high")
    page.fill("#x-min", "1")
    page.fill("#x-max", "3")
    radii = [int(text.split("radius ")[1]) for text in items.all_inner_texts()]
    assert radii == sorted(radii, reverse=True)
    assert set(radii) <= {1, 2, 3}
    page.select_option("#x-right", "")
    page.select_option("#x-class", index=1)
    assert items.count() < everything
    page.fill("#x-min", "9999")
    expect(count).to_contain_text("No input matches")
    expect(page.locator("#x-detail")).to_contain_text("Choose an input")


def test_the_keyboard_walks_through_inputs(page):
    first = page.locator("#x-list button").first
    first.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    second = page.locator("#x-list button").nth(1)
    expect(second).to_be_focused()
    expect(second).to_have_attribute("aria-current", "true")
    number_ = re.search(r"#(\d+)", second.inner_text()).group(1)
    expect(page.locator("#x-detail h3")).to_contain_text(f"Input {number_}:")


@pytest.mark.parametrize("election", [0, 1])
@pytest.mark.parametrize("source", [0, 1])
def test_an_attack_is_stepped_through_to_its_end(page, source, election):
    page.select_option("#x-source", str(source))
    page.select_option("#x-election", index=election)
    page.select_option("#x-sort", "high")
    page.locator("#x-list button").first.click()
    radius = int(page.locator("#x-list button").first.inner_text().split("radius ")[1])
    predicted = page.locator("#x-keys > span").first.inner_text()
    status, step = page.locator("#x-status"), page.locator("#x-next")
    expect(status).to_contain_text("Before the attack")
    assert page.locator("#x-grid .cell.taken").count() == 0
    steps = 0
    while step.is_enabled():
        step.click()
        steps += 1
        if step.is_enabled():
            expect(status).to_contain_text(f"{predicted} still wins")
    assert steps >= radius + 1
    expect(status).to_contain_text("Now ")
    expect(status).not_to_contain_text(f"Now {predicted} wins")
    assert page.locator("#x-grid .cell.taken").count() >= steps
    page.locator("#x-back").click()
    expect(status).to_contain_text(f"{predicted} still wins")
    page.locator("#x-reset").click()
    expect(status).to_contain_text("Before the attack")
    assert page.locator("#x-grid .cell.taken").count() == 0


def test_an_attack_plays_by_itself(page):
    page.select_option("#x-sort", "low")
    page.locator("#x-list button").first.click()
    page.locator("#x-play").click()
    expect(page.locator("#x-status")).to_contain_text("Now ", timeout=10_000)
    expect(page.locator("#x-play")).to_have_text("Play")


def test_the_table_is_downloaded_and_copied(page, tmp_path):
    with page.expect_download() as download:
        page.locator("#download").click()
    download.value.save_as(tmp_path / "table.csv")
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    shown = [row.locator("th, td").all_inner_texts() for row in page.locator("#numbers tr").all()]
    assert [row[0] for row in rows] == [row[0] for row in shown]
    assert [row[1:] for row in rows[1:]] == [[cell.replace("–", "") for cell in row[1:]] for row in shown[1:]]
    best = page.locator("#numbers td.best")
    assert best.count() >= len(rows[0]) - 2
    page.locator("#copy").click()
    expect(page.locator("#copied")).to_have_text("Copied.")


def test_a_downloaded_table_of_changed_labels_says_what_is_not_covered(opened, reports, tmp_path):
    html = reports["two"].read_text(encoding="utf-8")
    html = html.replace('data-noun="edit" data-caveat=""', 'data-noun="changed label" data-caveat=" (not all)"')
    (tmp_path / "labels.html").write_text(html, encoding="utf-8")
    page = opened(tmp_path / "labels.html")
    with page.expect_download() as download:
        page.locator("#download").click()
    head = download.value.path().read_text(encoding="utf-8").splitlines()[0].split(",")
    assert head[:2] == ["method", "clean"]
    assert len(head) > 2
    assert all(re.fullmatch(r"\d+ changed labels? \(not all\)", title) for title in head[2:])


def test_charts_have_tables(page):
    for details in page.locator("details").all():
        details.locator("summary").click()
        expect(details.locator("table")).to_be_visible()
        assert details.locator("tbody tr").count() >= 2


def test_classes_and_radii_follow_their_choices(page):
    before = page.locator("#classes").get_attribute("aria-label")
    page.select_option("#class-budget", "0")
    assert page.locator("#classes").get_attribute("aria-label") != before
    page.select_option("#class-order", "worst")
    page.select_option("#class-source", "1")
    page.locator("summary", has_text="The members as a table").click()
    page.select_option("#m-source", "1")
    expect(page.locator("#members-table tbody tr").first).to_be_visible()
    if page.locator("#members-table tbody tr").count() == 40:  # the run with 43 classes and a spread
        expect(page.locator("#member-charts")).to_contain_text("Not recorded for 5 members.")
    page.select_option("#radii-method", "0")
    expect(page.locator("#histogram")).to_have_attribute("aria-label", re.compile("Histogram of radii for DPA"))
    assert page.locator("#classes-table tbody tr").count() in (10, 43)


def test_names_are_text(opened, reports):
    page = opened(reports["signs"])
    assert page.locator("script").count() == 9
    assert page.locator("#x-class option").all_inner_texts()[1:3] == ["<script>alert(1)</script>", "</script>"]
    expect(page.locator("#classes-table")).to_contain_text("<script>alert(1)</script>")
