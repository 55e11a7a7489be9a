"""The helper that runs pages of the documents finds what is wrong with them."""

import sys

import gymnasium as gym
import pytest
from pages import run_page, shows

PAGE = """
# A page

<!-- file: own/page_module.py -->
```python
import gymnasium

gymnasium.register("PageModule-v0", "own.page_module:Nothing")
ANSWER = 42
```

```python
from own.page_module import ANSWER

print("the answer is", ANSWER)
```

It prints:

<!-- output -->
```
the answer
is ...2
```

<!-- raises: ZeroDivisionError -->
```python
ANSWER / 0
```

<!-- output -->
```text
ZeroDivisionError: division by zero
```

```
$ tfsac presets  # a comment
pendulum_sac   is not looked at
```

<!-- output -->
```
pendulum_sac ...
```

<!-- status: 2 -->
```bash
tfsac presets
tfsac evaluate \\
  --episodes=3
```

<!-- output -->
```
tfsac: --run_dir is required
```

<!-- skip -->
```python
raise SystemExit
```
"""


def write(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    return page, tmp_path / "folder"


def test_a_page_runs_from_top_to_bottom_and_leaves_nothing_behind(tmp_path):
    namespace = run_page(*write(tmp_path, PAGE), {"42": "32"})
    assert namespace["ANSWER"] == 32
    assert (tmp_path / "folder" / "own" / "page_module.py").is_file()
    assert "own.page_module" not in sys.modules and "PageModule-v0" not in gym.registry


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
        run_page(*write(tmp_path, PAGE), {"7": "8"})


def test_the_parts_of_an_output_are_in_this_order():
    assert shows("a ... c", "x a  b\nc") and not shows("c ... a", "x a b c")
