"""Pictures: read without colour, kept apart in colour-blind eyes, plain for the policy."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from evalharness.noninferiority import Asked
from evalharness.report import report_document
from evalharness.report.plots import COLOURS, MARKERS, delta_plots, forest_plots, load_plot
from tests.report.plant import BFCL, NLL, Plant, paired, plant_run

NLL_MARGIN = {"nats_per_token": 0.01, "tail_nats": 0.5, "tail_share": 0.01}
# Viénot, Brettel and Mollon 1999: linear RGB as a deuteranope and a protanope see it.
BLINDNESS = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "deuteranopia": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
    "protanopia": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
}


def linear(colour: str) -> np.ndarray:
    """Linear RGB of #rrggbb."""
    value = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2)."""
    return float(linear(colour) @ np.array([0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("verdict", COLOURS)
def test_white_text_on_every_badge_is_legible(verdict: str) -> None:
    assert 1.05 / (luminance(COLOURS[verdict]) + 0.05) >= 4.5


def test_the_page_and_the_pictures_use_the_same_colours() -> None:
    css = (Path(__file__).parents[2] / "evalharness/report/templates/style.css").read_text()
    for verdict, colour in COLOURS.items():
        assert f"--{verdict.split()[0]}: {colour};" in css


@pytest.mark.parametrize("eyes", BLINDNESS)
def test_admitted_and_harm_stay_apart(eyes: str) -> None:
    seen = {v: np.clip(np.array(BLINDNESS[eyes]) @ linear(c), 0, 1) for v, c in COLOURS.items()}
    apart = np.abs(seen["admitted"] ** (1 / 2.2) - seen["harm shown"] ** (1 / 2.2)).max()
    assert apart > 0.35


def test_shapes_tell_the_verdicts_without_colour() -> None:
    assert len(set(MARKERS.values())) == len(MARKERS)
    assert set(MARKERS) == set(COLOURS)


def test_pictures_have_text_and_nothing_a_policy_blocks(tmp_path: Path) -> None:
    plant = Plant(
        suites=(BFCL, NLL),
        margins={"bfcl": 0.1, "nll.decode": NLL_MARGIN},
        outcomes=paired(correct=60, wins=1, losses=9, arms=("hc",)),
    )
    document = report_document([plant_run(tmp_path / "run", plant)], Asked())
    load = load_plot(document)
    assert load is not None
    pictures = [
        *(picture for _, picture in forest_plots(document)),
        *(picture for *_, picture in delta_plots(document)),
        load,
    ]
    ids: list[str] = []
    for picture in pictures:
        assert "style=" not in picture
        assert "<style" not in picture
        assert "<metadata" not in picture
        assert "mathdefault" not in picture
        assert "<title" in picture
        assert "<desc" in picture
        assert 'role="img"' in picture
        ids += [part.split('"')[0] for part in picture.split(' id="')[1:]]
    assert len(ids) == len(set(ids))


def test_the_forest_shows_what_the_numbers_say(tmp_path: Path) -> None:
    plant = Plant(outcomes=paired(correct=60, wins=1, losses=9, arms=("hc",)))
    document = report_document([plant_run(tmp_path / "run", plant)], Asked())
    words = dict(forest_plots(document))["hc"]
    assert "bfcl tools C1: " in words
    assert "-10.0 (" in words
    assert "+1 −9" in words


def test_pictures_do_not_depend_on_the_process(tmp_path: Path) -> None:
    document = report_document([plant_run(tmp_path / "run", Plant())], Asked())
    again = json.loads(json.dumps(document))
    for (_, one), (_, two) in itertools.zip_longest(forest_plots(document), forest_plots(again)):
        assert one == two
