"""The user's modules are found, and what is in them has a name that is the same in every process."""

import functools
import json

import pytest

from tfsac.errors import TfsacError
from tfsac.utils.imports import load, name_of


@pytest.mark.parametrize("name", ["nothing_of_this_name:Mine", "json:Mine", "json", "json:"])
def test_what_no_module_has_is_refused(name):
    assert load("json:decoder.JSONDecoder") is json.decoder.JSONDecoder
    with pytest.raises(TfsacError, match=name):
        load(name)


def test_an_error_in_the_users_module_passes(tmp_path, monkeypatch):
    (tmp_path / "module_that_needs.py").write_text("import nothing_of_this_name")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="nothing_of_this_name"):
        load("module_that_needs:Mine")


class Maker:
    def __call__(self):
        return None


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (json.loads, "json.loads"),
        (functools.partial(json.loads, "1"), "json.loads"),
        (Maker(), f"{__name__}.Maker"),
    ],
)
def test_a_function_has_a_name_that_is_the_same_in_every_process(function, name):
    assert name_of(function) == name
