"""Looks can be told apart, and text on them reads, by anyone."""

import itertools

import numpy as np
import pytest

from labkit.event import Kind
from labkit.view.theme import HELD_LOOKS, LOOK_OF_KIND, LOOKS, contrast, look, luminance, template, text_on

THEMES = ("light", "dark")
NEIGHBOURS = ("forward", "backward", "backward_input", "backward_weight", "optimizer", "sync", "wait", "idle")
"""Looks that lie side by side all the time."""

# Machado, Oliveira and Fernandes 2009, severity 1.0: what linear RGB becomes.
SIGHTS = {
    "normal": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("one", LOOKS + HELD_LOOKS, ids=lambda one: one.name)
def test_text_on_every_fill_reads(one, theme):
    assert contrast(one.text(theme), one.fill(theme)) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
def test_neighbours_differ_in_lightness_or_pattern(theme):
    for a, b in itertools.combinations(NEIGHBOURS, 2):
        apart = abs(_lightness(look(a).fill(theme)) - _lightness(look(b).fill(theme)))
        assert apart >= 8 or look(a).pattern != look(b).pattern, f"{a} and {b}: {apart:.1f}"


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("sight", SIGHTS)
def test_neighbours_differ_for_every_sight(theme, sight):
    for a, b in itertools.combinations(NEIGHBOURS, 2):
        apart = np.linalg.norm(_lab(look(a).fill(theme), sight) - _lab(look(b).fill(theme), sight))
        assert apart >= 15 or look(a).pattern != look(b).pattern, f"{a} and {b}: {apart:.1f}"


@pytest.mark.parametrize("theme", THEMES)
def test_forward_and_backward_differ_in_grey(theme):
    assert abs(_lightness(look("forward").fill(theme)) - _lightness(look("backward").fill(theme))) >= 15


@pytest.mark.parametrize("theme", THEMES)
def test_what_lies_on_each_other_in_memory_differs_in_lightness(theme):
    for below, above in itertools.pairwise(HELD_LOOKS):
        assert abs(_lightness(below.fill(theme)) - _lightness(above.fill(theme))) >= 8 or below.pattern != above.pattern


def test_every_kind_that_is_a_span_has_a_look():
    assert set(LOOK_OF_KIND) == set(Kind) - {Kind.STEP, Kind.VALUE}
    assert set(LOOK_OF_KIND.values()) <= {one.name for one in LOOKS}


def test_contrast_of_known_pairs():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert text_on("#000000") == "#ffffff"


@pytest.mark.parametrize("theme", THEMES)
def test_chart_text_reads(theme):
    layout = template(theme).layout
    for text in (layout.font.color, layout.xaxis.title.font.color, layout.xaxis.tickfont.color):
        assert contrast(text, layout.paper_bgcolor) >= 4.5


def _lightness(colour: str) -> float:
    """CIE L*: 0 black, 100 white."""
    y = luminance(colour)
    return 116 * np.cbrt(y) - 16 if y > 0.008856 else 903.3 * y


def _lab(colour: str, sight: str) -> np.ndarray:
    """CIELAB of a colour as someone sees it."""
    srgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(SIGHTS[sight]) @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = (to_xyz @ seen) / (0.9505, 1, 1.089)
    fx, fy, fz = (np.cbrt(v) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])
