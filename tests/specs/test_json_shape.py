"""Checks of the shape of JSON that users, clusters and containers give."""

from __future__ import annotations

from typing import Any

import pytest

from torchx.json_shape import check


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e300, 10**400, -(2**53) - 1])
@pytest.mark.parametrize("shape", [int, float, (int, str)])
def test_numbers_out_of_range_do_not_fit(value: Any, shape: Any) -> None:
    with pytest.raises(ValueError, match=r"`x` takes .* got a number out of range"):
        check({"x": [value]}["x"][0], shape, "x")


@pytest.mark.parametrize("value", [0, -3, 2**53, True])
def test_whole_numbers_fit_but_truth_values_do_not(value: Any) -> None:
    if value is True:
        with pytest.raises(ValueError, match="got true or false"):
            check(value, float, "x")
    else:
        check(value, int, "x")
        check(value, float, "x")
