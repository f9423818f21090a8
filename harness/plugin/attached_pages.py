"""The pages of a test in the reports of other plugins: a link in pytest-html, an attachment in Allure.

Nothing is imported unless the other plugin is loaded and writes a report. pytest-html gets a link that is relative to
its own file, so both can be moved together; Allure copies the page into its results. May fail: nothing; a page that
does not exist is left out.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import run_folder
from .attempts import number_in, properties_by_attempt

if TYPE_CHECKING:
    import pytest

HTML, ALLURE = "html", "allure_listener"
"""The names under which pytest-html and allure-pytest register, the second one only with `--alluredir`."""
NAME = "Harrow"


def attach_pages(item: pytest.Item, report: pytest.TestReport) -> None:
    """Attach the pages of the running attempt of a test."""
    pages = pages_of(item)
    html_file = _html_file(item.config)
    if html_file is not None:
        extras: Any = importlib.import_module("pytest_html").extras
        links = [extras.url(os.path.relpath(page, html_file.parent), name=name) for name, page in pages]
        with_extras: Any = report
        with_extras.extras = [*getattr(report, "extras", []), *links]
    if item.config.pluginmanager.hasplugin(ALLURE):
        allure: Any = importlib.import_module("allure")
        for name, page in pages:
            allure.attach.file(str(page), name=name, attachment_type=allure.attachment_type.HTML)


def pages_of(item: pytest.Item) -> list[tuple[str, Path]]:
    """Return the pages of the running attempt, each with its name: `Harrow`, `Harrow 2`."""
    properties = item.user_properties
    own = number_in(properties)
    noted = [
        (name.partition("-")[0], Path(value))
        for attempt, name, value in properties_by_attempt(properties)
        if attempt == own
    ]
    pages = [path for name, path in noted if name == "page"]
    without = [path for name, path in noted if name == "folder"]
    judged = {page.parent for page in pages}
    pages += [folder / run_folder.REPORT for folder in without if folder not in judged]
    existing = [page for page in dict.fromkeys(pages) if page.is_file()]
    return [(NAME if n == 1 else f"{NAME} {n}", page) for n, page in enumerate(existing, 1)]


def _html_file(config: pytest.Config) -> Path | None:
    path = getattr(config.option, "htmlpath", None)
    if not path or not config.pluginmanager.hasplugin(HTML):
        return None
    return config.invocation_params.dir / os.path.expandvars(str(path))
