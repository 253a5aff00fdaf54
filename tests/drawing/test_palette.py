import pytest

from lerobot_policy_quantile.drawing.palette import PALETTE, colour, style_sheet, with_light_colours


def luminance(shade: str) -> float:
    """Relative luminance of WCAG 2."""
    parts = [int(shade[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, two: str) -> float:
    bright, dark = sorted((luminance(one), luminance(two)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("name", [name for name in PALETTE if name not in ("grid", "ground", "card")])
def test_every_colour_that_writes_words_can_be_read_on_the_page_and_on_a_card(name, scheme):
    for ground in ("ground", "card"):
        assert contrast(PALETTE[name][scheme], PALETTE[ground][scheme]) >= 4.5


def test_unknown_names_are_ink():
    assert colour("flow") == "var(--flow)"
    assert colour("someone") == "var(--ink)"


def test_values_take_the_place_of_names():
    assert with_light_colours('fill="var(--l1)" stroke="var(--ink)"') == 'fill="#966000" stroke="#1B2430"'


def test_print_is_on_light_ground_whatever_the_scheme():
    sheet = style_sheet()
    assert sheet.index("prefers-color-scheme:dark") < sheet.index("@media print")
    assert sheet.split("@media print")[1].count(PALETTE["ink"][0]) == 1
