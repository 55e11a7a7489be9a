"""No damaged byte of a run's folder goes unnoticed; the driver in benchmarks counts more of them."""

import importlib.util
import pathlib

import pytest

DRIVER = pathlib.Path(__file__).parents[1] / "benchmarks" / "damages.py"


@pytest.mark.slow
def test_every_sampled_damage_is_mended_or_refused(tmp_path):
    module_spec = importlib.util.spec_from_file_location("damages", DRIVER)
    damages = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(damages)
    table = damages.count(24, 1, tmp_path)
    assert sum(table.values()) == 24
    assert {outcome for _, outcome in table} == {"before used", "mended", "refused"}
