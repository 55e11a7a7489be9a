"""The helper that runs pages of the documents finds what is wrong with them."""

import pytest
from pages import run_page, shows


def write(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    return page, tmp_path / "folder"


@pytest.mark.parametrize(
    "text, words",
    [
        ("```\ntfsac evaluate\n```\n", "line 2: evaluate ended with 2"),
        ("<!-- status: 2 -->\n```\ntfsac presets\n```\n", "line 3: presets ended with 0"),
        ("<!-- raises: ValueError -->\n```python\nx = 1\n```\n", "raised nothing"),
        ("```python\nprint(1)\n```\n<!-- output -->\n```\n2\n```\n", "printed was\n1"),
    ],
)
def test_a_page_that_does_not_do_what_it_says_is_refused(tmp_path, text, words):
    with pytest.raises(AssertionError, match=words):
        run_page(*write(tmp_path, text))


def test_a_text_that_is_to_be_replaced_must_be_there(tmp_path):
    with pytest.raises(AssertionError, match="does not have '7'"):
        run_page(*write(tmp_path, "# A page"), {"7": "8"})


def test_the_parts_of_an_output_are_in_this_order():
    assert shows("a ... c", "x a  b\nc") and not shows("c ... a", "x a b c")
