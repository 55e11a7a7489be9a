"""Errors of the user's own code say where."""

import functools
import json
import pathlib

import numpy as np
import pytest

from tfsac.user_code import UserCodeError, calling, described, name_of


def test_the_place_is_the_innermost_one_of_the_users_code():
    def parse():
        return json.loads("{")

    place = r"^env_fn raised\. Received: JSONDecodeError: .*test_user_code\.py, line \d+, in parse\)$"
    with pytest.raises(UserCodeError, match=place), calling("env_fn"):
        parse()


def test_an_error_without_a_message_has_its_type():
    with pytest.raises(UserCodeError, match=r"Received: KeyError \(.*test_user_code"), calling("it"):
        raise KeyError


def test_errors_that_say_what_was_received_pass():
    with pytest.raises(ValueError, match=r"^x is 1\. Received: 2$"), calling("it"):
        raise ValueError("x is 1. Received: 2")


def test_a_file_with_a_syntax_error_is_named(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("a = 1\nb = (\n")
    with pytest.raises(SyntaxError) as caught:
        compile(pathlib.Path(file).read_text(), str(file), "exec")
    assert f"({file}, line 2)" in described(caught.value)


class Wordless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def test_an_error_that_cannot_say_its_message_has_its_type():
    with pytest.raises(UserCodeError, match=r"^it raised\. Received: Wordless \(.*test_user_code"), calling("it"):
        raise Wordless


def test_a_very_long_message_is_cut():
    assert len(described(ValueError("x" * 10**6))) < 3000


def test_messages_of_several_lines_become_one():
    assert described(ValueError("a\n  b")) == "ValueError: a b"


class Mute:
    def __repr__(self):
        raise RuntimeError


class Maker:
    def __call__(self):
        return None


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (json.loads, "json.loads"),
        (functools.partial(json.loads, "1", parse_int=float), "json.loads('1', parse_int=<class 'float'>)"),
        (functools.partial(json.loads, Maker()), f"json.loads(<{__name__}.Maker object>)"),
        (Maker(), f"{__name__}.Maker"),
        (functools.partial(json.loads, np.random.default_rng(0)), "json.loads(Generator(PCG64))"),
        (functools.partial(json.loads, Mute()), "json.loads(Mute)"),
    ],
)
def test_a_name_tells_arguments_apart_and_is_the_same_in_every_process(function, name):
    assert name_of(function) == name


def test_a_long_argument_is_told_by_its_beginning_and_its_hash():
    one, other = (name_of(functools.partial(json.loads, [*range(1000), last])) for last in (0, 1))
    assert one != other and one[:60] == other[:60] and len(one) < 120
