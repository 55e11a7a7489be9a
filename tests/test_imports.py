"""Loading objects from user modules by name, and naming them."""

import functools
import json

import pytest

from tfsac.errors import TfsacError
from tfsac.utils.imports import load, name_of


@pytest.mark.parametrize("name", ["nothing_of_this_name:Mine", "json:Mine", "json", "json:"])
def test_missing_names_are_rejected(name):
    assert load("json:decoder.JSONDecoder") is json.decoder.JSONDecoder
    with pytest.raises(TfsacError, match=name):
        load(name)


def test_import_error_in_user_module_propagates(tmp_path, monkeypatch):
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
def test_name_of_is_stable(function, name):
    assert name_of(function) == name
