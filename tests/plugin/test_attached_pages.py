"""pytest-html and Allure get the page of a test when they are loaded (J8)."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harrow.harness.plugin.attached_pages import attach_pages


def item_with(folder: Path, *plugins: str) -> pytest.Item:
    """An item whose second attempt had two verdicts; the page of its first attempt is there too."""
    pages: dict[str, Path] = {}
    for name in ("first", "again", "other"):
        pages[name] = folder / "harrow-out" / name
        pages[name].mkdir(parents=True)
        (pages[name] / "report.html").write_text(name)
    properties: list[tuple[str, object]] = [
        ("harrow.attempt-1.folder", str(pages["first"])),
        ("harrow.attempt", "2"),
        ("harrow.folder", str(pages["again"])),
        ("harrow.folder-2", str(pages["again"])),
        ("harrow.folder-3", str(pages["other"])),
        ("harrow.folder-4", str(folder / "gone")),
        ("mine", "1"),
    ]
    config = SimpleNamespace(
        option=SimpleNamespace(htmlpath="reports/all.html"),
        invocation_params=SimpleNamespace(dir=folder),
        pluginmanager=SimpleNamespace(hasplugin=plugins.__contains__),
    )
    return cast("pytest.Item", SimpleNamespace(config=config, user_properties=properties))


def test_pytest_html_gets_a_relative_link_to_each_page_of_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def url(content: str, *, name: str) -> tuple[str, str]:
        return name, content

    fake: Any = SimpleNamespace(extras=SimpleNamespace(url=url))
    monkeypatch.setitem(sys.modules, "pytest_html", fake)
    report: Any = SimpleNamespace(extras=["the user's"])
    attach_pages(item_with(tmp_path, "html"), report)
    assert report.extras == [
        "the user's",
        ("Harrow", "../harrow-out/again/report.html"),
        ("Harrow 2", "../harrow-out/other/report.html"),
    ]


def test_allure_gets_the_pages_as_attachments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attached: list[tuple[str, str, str]] = []

    def file(path: str, *, name: str, attachment_type: str) -> None:
        attached.append((name, Path(path).read_text(), attachment_type))

    allure: Any = SimpleNamespace(attach=SimpleNamespace(file=file), attachment_type=SimpleNamespace(HTML="text/html"))
    monkeypatch.setitem(sys.modules, "allure", allure)
    report: Any = SimpleNamespace()
    attach_pages(item_with(tmp_path, "allure_listener"), report)
    assert attached == [("Harrow", "again", "text/html"), ("Harrow 2", "other", "text/html")]
    assert not hasattr(report, "extras")


def test_nothing_is_attached_or_imported_without_a_report_of_another_plugin(tmp_path: Path) -> None:
    report: Any = SimpleNamespace()
    attach_pages(item_with(tmp_path), report)
    assert vars(report) == {}
