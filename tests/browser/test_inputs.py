"""One input of one run: by keyboard, by address, and across runs; the undefended model; classes; print."""

import re

import pytest
from playwright.sync_api import expect

DESKTOP = pytest.mark.parametrize("screen", ["desktop"])


@pytest.fixture
def page(opened, reports):
    return opened(reports["signs"])


def number(text):
    return float(re.search(r"[\d.]+", text).group())


def shown(page):
    """The number of the open input."""
    return int(re.match(r"Input (\d+):", page.locator("#x-detail h3").inner_text())[1])


# -- the undefended model ----------------------------------------------------------------------------------------------


def test_the_undefended_model_is_the_first_row(page):
    rows = page.locator("#numbers tbody tr").all_inner_texts()
    cells = re.split(r"\s+", rows[0].strip())
    assert cells[0] == "undefended"
    assert cells[2:] == ["–"] * (page.locator("#numbers thead th").count() - 2)
    expect(page.locator("#dashes")).to_be_visible()
    accuracy = f"{number(cells[1]):.1f} %"
    tiles = page.locator(".tile").all_inner_texts()
    assert f"Undefended: {accuracy}" in tiles[0]
    assert "Undefended: nothing is proven" in tiles[1]
    assert accuracy in tiles[1]
    assert re.search(r"Undefended: [\d.]+ %", tiles[2])  # of the least certified class
    expect(page.locator("#legend .fixed")).to_contain_text(f"clean {accuracy}, nothing proven")
    assert f"undefended: {accuracy} without an attack" in page.locator("#curves").get_attribute("aria-label")
    expect(page.locator("#readout span").first).to_have_text("undefended: nothing proven")
    expect(page.locator("#x-compare tbody tr").first).to_contain_text("nothing proven")
    page.locator("summary", has_text="The classes as a table").click()
    assert page.locator("#classes-table th").all_inner_texts()[2] == "undefended, %"
    expect(page.locator("#bare-note")).to_be_hidden()


# -- classes -----------------------------------------------------------------------------------------------------------


@DESKTOP
def test_the_chart_by_class_has_a_legend_and_a_hint(page):
    legend = page.locator("#class-legend > span")
    assert legend.all_inner_texts() == ["undefended, without an attack", "DPA", "DPA+ROE"]
    assert legend.locator("svg").count() == 3
    page.select_option("#class-source", "1")
    assert legend.all_inner_texts()[1:] == ["FA", "FA+ROE"]
    page.locator("summary", has_text="The classes as a table").click()
    hint, shown_hints = page.locator("#class-hint"), []
    for budget in page.locator("#class-budget option").all_inner_texts():
        page.select_option("#class-budget", budget)
        values = page.locator("#classes-table tbody td:last-child").all_inner_texts()
        if "0.0" not in values or set(values) == {"0.0"}:
            expect(hint).to_be_hidden()
            continue
        expect(hint).to_contain_text(f"FA+ROE at {budget} edit")
        told = re.search(r"but 0 % for (\d+) of the (\d+) classes: ", hint.inner_text())
        assert (int(told[1]), int(told[2])) == (values.count("0.0"), len(values))
        shown_hints.append(budget)
    assert shown_hints


# -- the keyboard ------------------------------------------------------------------------------------------------------


@DESKTOP
def test_the_list_is_one_stop_of_the_tab_key(page):
    buttons = page.locator("#x-list button")
    assert buttons.count() > 100
    assert page.locator("#x-list button[tabindex='0']").count() == 1
    page.locator("#x-sort").focus()
    page.keyboard.press("Tab")
    expect(page.locator(".skip.inline")).to_be_focused()
    expect(page.locator(".skip.inline")).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("End")
    expect(buttons.last).to_be_focused()
    assert f"#{shown(page)} " in buttons.last.inner_text()
    page.keyboard.press("PageUp")
    expect(buttons.nth(buttons.count() - 11)).to_be_focused()
    page.keyboard.press("Home")
    expect(buttons.first).to_be_focused()
    page.keyboard.press("PageDown")
    expect(buttons.nth(10)).to_be_focused()
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "x-next":
            break
    expect(page.locator("#x-next")).to_be_focused()


@DESKTOP
def test_links_at_the_top_skip_to_the_attack(page):
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    link = page.locator(".skip").nth(1)
    expect(link).to_be_focused()
    expect(link).to_have_text("Skip to a single input and its attack")
    page.keyboard.press("Enter")
    expect(page.locator("#x-detail")).to_be_focused()


# -- runs and addresses ------------------------------------------------------------------------------------------------


def test_switching_runs_keeps_the_input(page):
    page.select_option("#x-election", index=0)
    page.locator("#x-list button").nth(7).click()
    before = shown(page)
    labels = [text.split("·")[0] for text in page.locator("#x-list button").all_inner_texts()]
    assert "the same for signs and spread" in page.locator("#sample-how").inner_text()
    page.select_option("#x-source", "1")
    assert shown(page) == before
    assert page.locator("#x-election option:checked").inner_text() == "plurality (FA)"
    numbers = re.findall(r"#(\d+)", " ".join(page.locator("#x-list button").all_inner_texts()))
    assert numbers == re.findall(r"#(\d+)", " ".join(labels))
    current = page.locator("#x-compare tr[aria-current]")
    expect(current).to_contain_text("FA")
    radius = int(current.locator("td").last.inner_text())
    expect(page.locator("#x-detail")).to_contain_text(f"Radius {radius} with plurality")
    page.locator("#x-compare button", has_text="DPA+ROE").click()
    assert shown(page) == before
    expect(page.locator("#x-source")).to_have_value("0")
    expect(page.locator("#x-compare [aria-current] button")).to_be_focused()


@DESKTOP
def test_filters_do_not_take_the_input_away_when_runs_are_switched(page):
    page.select_option("#x-sort", "high")
    page.locator("#x-list button").first.click()
    most = re.search(r"radius (\d+)", page.locator("#x-list button").first.inner_text())[1]
    page.fill("#x-min", most)
    before = shown(page)
    page.select_option("#x-source", "1")
    assert shown(page) == before
    if page.locator("#x-list button[aria-current='true']").count() == 0:
        expect(page.locator("#x-count")).to_contain_text(f"Input {before} is shown, but does not match")
    page.fill("#x-min", "")
    page.select_option("#x-right", "split")
    for button in page.locator("#x-list button").all()[:3]:
        button.click()
        predictions = page.locator("#x-compare tbody tr td:nth-child(2)").all_inner_texts()[1:]
        assert len(set(predictions)) > 1


def test_an_address_opens_one_input_of_one_run(page, opened, reports):
    page.select_option("#x-source", "1")
    page.select_option("#x-election", index=0)
    page.locator("#x-list button").nth(20).click()
    before, address = shown(page), page.evaluate("location.hash")
    assert address == f"#input={before}&run=2&election=plurality"
    page.goto("about:blank")
    opened(reports["signs"], address)
    expect(page.locator("#x-source")).to_have_value("1")
    expect(page.locator("#x-detail h3")).to_contain_text(f"Input {before}:")
    expect(page.locator("#x-compare [aria-current]")).to_contain_text("FA")
    assert abs(page.locator("#explorer").bounding_box()["y"]) < 200
    other = page.locator("#x-list button").first.inner_text()
    wanted = re.search(r"#(\d+)", other)[1]
    page.evaluate(f"location.hash = 'input={wanted}&run=1&election=runoff'")
    expect(page.locator("#x-detail h3")).to_contain_text(f"Input {wanted}:")
    expect(page.locator("#x-source")).to_have_value("0")
    page.evaluate("location.hash = 'input=99999'")
    expect(page.locator("#x-count")).to_contain_text("Input 99999 is not among the 150 inputs of this page")


@DESKTOP
def test_the_address_is_copied(page):
    page.locator("#x-list button").nth(3).click()
    page.locator("#x-link").click()
    expect(page.locator("#x-detail [role=status]").first).to_have_text("Copied.")


@DESKTOP
def test_radii_against_single_classes(page):
    text = page.locator("#x-detail .targets").inner_text()
    radius = int(page.locator("#x-compare tr[aria-current] td").last.inner_text())
    found = [int(n) for n in re.findall(r"no (\d+) edits can make", text)]
    assert found == sorted(found)
    assert min(found) >= radius


# -- paper and old browsers --------------------------------------------------------------------------------------------


def brightness(page, selector, what="color"):
    color = page.locator(selector).first.evaluate(f"node => getComputedStyle(node).{what}")
    return sum(float(n) for n in re.findall(r"[\d.]+", color)[:3]) / 3


@DESKTOP
def test_print_from_the_dark_page_is_dark_on_white(page):
    page.locator("#theme").click()
    assert brightness(page, "body", "backgroundColor") < 50 < 200 < brightness(page, "body")
    page.locator("#x-next").scroll_into_view_if_needed()
    page.emulate_media(media="print")
    head, first = (page.locator(f"#numbers {row}").bounding_box() for row in ("thead th >> nth=0", "tbody tr >> nth=0"))
    assert head["y"] + head["height"] <= first["y"] + 1  # the head covers no row, wherever the page was
    assert brightness(page, "body", "backgroundColor") == 255
    for selector in ("body", "h1", ".lead", ".tile .big", "#numbers td", ".status", "#curves svg text"):
        assert brightness(page, selector) < 120, selector
    expect(page.locator("#x-list")).to_be_hidden()
    expect(page.locator("#x-next")).to_be_hidden()
    expect(page.locator("#x-grid")).to_be_visible()
    for selector in (".slider output", "#radii-method", "#class-budget"):  # what the charts show
        expect(page.locator(selector)).to_be_visible()
    for selector in ("#budget", "#x-min", ".screen >> nth=0"):  # what paper cannot do
        expect(page.locator(selector)).to_be_hidden()
    assert page.pdf()[:5] == b"%PDF-"


def test_a_browser_without_decompression_gets_a_sentence(chromium, reports):
    context = chromium.new_context()
    page = context.new_page()
    page.add_init_script("delete window.DecompressionStream")
    page.goto(reports["demo"].as_uri())
    expect(page.locator("#x-count")).to_contain_text("this needs a browser of 2023 or later")
    assert page.locator("#numbers tbody tr").count() == 5
    context.close()
