"""A code block that is wrong fails, and the failure names its page and line: the checks of documents, checked."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from code_blocks import read_blocks
from documented_project import DocumentedProject, first_missing

PAGE = """
    # A page

    {comment}
    ```{language}
    {code}
    ```
"""


def check(tmp_path: Path, language: str, code: str, comment: str = "") -> None:
    page = textwrap.dedent(PAGE).format(language=language, code=code, comment=comment)
    DocumentedProject(tmp_path, read_blocks(page, "page.md")).check()


@pytest.mark.parametrize(
    ("language", "code", "says"),
    [
        ("python", "def test_sum():\n    assert 1 + 1 == 3", "assert (1 + 1) == 3"),
        ("python", "import warnings\nwarnings.warn('old')", "UserWarning: old"),
        ("python", "import pytest\ndef test_it():\n    pytest.skip('later')", "1 skipped"),
        ("python", "class TestSum:\n    def test_it(self):\n        assert 1 == 2", "assert 1 == 2"),
        ("python", "from harrow import Harow", "harrow has no Harow"),
        ("python", "# shop.py\norders = 1", "no other block of the page uses shop.py"),
        ("console", "$ pytest --harrow-sed 1", "pytest has no option --harrow-sed"),
        ("console", "$ harrow chaos --second 3", "No such option '--second'"),
        ("console", "$ harrow checks FOLDER", "harrow has the commands up, demo, "),
        ("console", "$ harrow topics", "arguments that are missing: ['bootstrap_servers']"),
        ("console", "$ harrow check ONE TWO", "too many: ['TWO']"),
        ("console", "$ make demos", "the Makefile has no target demos"),
        ("console", "$ pip install pytest-harrow[fakr]", "pytest-harrow has no extra fakr"),
        ("console", "$ python -m harrow.no_such", "there is no module harrow.no_such"),
        ("console", "$ kafka-topics --list", "nothing checks commands of 'kafka-topics'"),
        ("console", "output first\n$ pytest", "a console block begins with a command"),
        ("console", "$ python -m this\nThe Zen of Perl", "no line of the output is\nThe Zen of Perl"),
        ("ini", "[pytest]\nharrow_borkers = 2", "Unknown config option: harrow_borkers"),
        ("ini", "[pytest]\nharrow_brokers = many", "harrow_brokers: 'many'"),
        ("toml", "[tool.pytst]\nharrow_brokers = 2", "pytest finds no settings in it"),
        ("toml", "[tool.pytest.ini_options]\nharrow_set = ['a=1']", "a: no such broker setting"),
        ("yaml", "run: pytest --harrow-sed 1", "pytest has no option --harrow-sed"),
        ("yaml", "steps:\n- {run: make demos}", "the Makefile has no target demos"),
        ("json", "{'seed': 1}", "Expecting property name"),
        ("ruby", "puts 1", "a code block of language 'ruby': nothing checks it"),
    ],
)
def test_a_wrong_block_fails(tmp_path: Path, language: str, code: str, says: str) -> None:
    with pytest.raises((AssertionError, ValueError)) as failure:
        check(tmp_path, language, code)
    assert says in str(failure.value)
    if language != "json":
        assert "page.md:6" in str(failure.value)


def test_a_block_with_a_reason_is_not_run(tmp_path: Path) -> None:
    check(tmp_path, "console", "$ no-such-program", "<!-- not run: needs a cluster -->")


@pytest.mark.parametrize("comment", ["<!-- not run -->", "<!-- not run: -->", "<!--not run-->"])
def test_a_block_that_is_not_run_needs_a_reason(tmp_path: Path, comment: str) -> None:
    with pytest.raises(AssertionError, match="expected <!-- not run: the reason -->"):
        check(tmp_path, "python", "1 / 0", comment)


def test_a_reason_belongs_to_the_block_that_follows_it() -> None:
    page = "<!-- not run: for no reason -->\n\ntext\n\n```python\n1 / 0\n```\n"
    with pytest.raises(AssertionError, match="no code block follows"):
        read_blocks(page, "page.md")


def test_a_right_page_passes(tmp_path: Path) -> None:
    page = """
    ```python
    # shop.py
    ORDERS = 3
    ```

    ```python
    # test_shop.py
    from shop import ORDERS

    def test_orders():
        assert ORDERS == 3
    ```

    ```python
    import shop
    ```

    ```console
    $ python shop.py
    $ pytest test_shop.py
    collected 1 item
    … 1 passed in …
    ```
    """
    DocumentedProject(tmp_path, read_blocks(textwrap.dedent(page), "page.md")).check()


def test_shown_lines_are_found_in_their_order() -> None:
    printed = "first  line\nsecond: 17 orders\nthird\n"
    assert first_missing(["first line", "…", "second: … orders"], printed) is None
    assert first_missing(["second: … orders", "first line"], printed) == "first line"
    assert first_missing(["second: … bills"], printed) == "second: … bills"
    assert first_missing(["first"], printed) == "first"
