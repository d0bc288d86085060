"""Parts of a machine."""

from __future__ import annotations

import pytest

from torchx.plugins import EIGHTH, HALF, QUARTER, SIXTEENTH, WHOLE, halve_mem_down_to, powers_of_two_gpus
from torchx.plugins.fractions import take_part
from torchx.specs import Resource


def test_sizes() -> None:
    assert (WHOLE, HALF, QUARTER, EIGHTH, SIXTEENTH) == (1.0, 0.5, 0.25, 0.125, 0.0625)


@pytest.mark.parametrize(
    ("gpus", "parts"),
    [
        (1, {WHOLE: "1"}),
        (2, {WHOLE: "2", HALF: "1"}),
        (8, {WHOLE: "8", HALF: "4", QUARTER: "2", EIGHTH: "1"}),
    ],
)
def test_accelerators_are_halved_down_to_one(gpus: int, parts: dict[float, str]) -> None:
    assert powers_of_two_gpus(Resource(1, gpus, 1)) == parts


@pytest.mark.parametrize("gpus", [-1, 0, 3, 6])
def test_other_numbers_cannot_be_halved(gpus: int) -> None:
    with pytest.raises(ValueError, match=f"power of two .* got {gpus}"):
        powers_of_two_gpus(Resource(1, gpus, 1))


@pytest.mark.parametrize(
    ("gib", "least", "parts"),
    [
        (64, 16, {WHOLE: "64", HALF: "32", QUARTER: "16"}),
        (100, 25, {WHOLE: "100", HALF: "50", QUARTER: "25"}),
        (100, 100, {WHOLE: "100"}),
        (8, 16, {}),
        (2, 0, {WHOLE: "2", HALF: "1"}),
    ],
)
def test_memory_is_halved_down_to_the_least(gib: int, least: int, parts: dict[float, str]) -> None:
    assert halve_mem_down_to(minGiB=least)(Resource(1, 0, gib * 1024)) == parts


def test_a_part_holds_whole_gib() -> None:
    with pytest.raises(ValueError, match="whole number of GiB"):
        halve_mem_down_to(minGiB=4)(Resource(1, 0, 25 * 1024))
    with pytest.raises(ValueError, match="whole number of GiB"):
        halve_mem_down_to(minGiB=1)(Resource(1, 0, 1025))


def test_a_part_has_its_share_of_everything() -> None:
    whole = Resource(9, 4, 1001, {"type": "x"}, {"efa": 3, "one": 1}, {"t": 1})
    half = take_part(whole, HALF)
    assert half == Resource(4, 2, 500, {"type": "x"}, {"efa": 1}, {"t": 1})
    half.capabilities["type"] = "y"
    assert whole == Resource(9, 4, 1001, {"type": "x"}, {"efa": 3, "one": 1}, {"t": 1})
    assert take_part(Resource(1, 0, 10), SIXTEENTH).cpu == 1


def test_an_accelerator_is_not_cut() -> None:
    with pytest.raises(ValueError, match=r"0.5 of 3 accelerators is not a whole number"):
        take_part(Resource(1, 3, 10), HALF)
