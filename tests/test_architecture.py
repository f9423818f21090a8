"""The documents name files, folders and control operations that exist; ARCHITECTURE.md names every room.

In ARCHITECTURE.md and README.md a path starts at the root of the project; a file name without a folder may lie
anywhere. In `docs/` a path may start inside a layer (`storage/indexes/`), and a page may name the files of its own code
blocks. The glossary lists former names in its chapter "Renames", which is not checked.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from harrow.cluster.events import EVENT_KINDS
from source_trees import nodes_of, tree_of

ROOT = Path(__file__).parents[1]
LAYERS = ("cluster", "faults", "harness")
TOP = (*LAYERS, "benchmarks", "docs", "package", "tests")
AT_ROOT = ("ARCHITECTURE.md", "README.md", "tests/README.md")
QUOTED = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?")
OWN_FILE = re.compile(r"^```python\n# ([\w/]+\.py)$", re.MULTILINE)
"""The name of a file that a code block of the document is."""
CLASS = re.compile(r"(?:[\w.]+\.)?([A-Z]\w+)(?:\.([a-z_]\w*))?")


def documents() -> list[str]:
    return [*AT_ROOT, *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


def text_of(document: str) -> str:
    text = (ROOT / document).read_text(encoding="utf-8")
    return text.partition("\n## Renames")[0] if document == "docs/glossary.md" else text


@cache
def paths() -> frozenset[str]:
    """Return every file and folder of the tree; a folder ends with `/`."""
    found = {path.name for path in ROOT.iterdir() if path.is_file()}
    for top in TOP:
        for path in (ROOT / top).rglob("*"):
            if "__pycache__" not in path.parts:
                name = path.relative_to(ROOT).as_posix()
                found.add(f"{name}/" if path.is_dir() else name)
    return frozenset(found | {f"{top}/" for top in TOP})


@cache
def path_ends() -> frozenset[str]:
    """Return the end of each path, from any of its folders on."""
    return frozenset(path[at:] for path in paths() for at in (0, *(m.end() for m in re.finditer("/", path))))


def is_path(token: str) -> bool:
    if not PATH.fullmatch(token):
        return False
    return token.endswith((".py", ".md")) or ("/" in token and token.partition("/")[0] in TOP)


def named_paths(text: str) -> list[str]:
    return [token for token in QUOTED.findall(text) if is_path(token)]


def exists(token: str, *, at_root: bool) -> bool:
    if at_root and "/" in token:
        return token in paths()
    return token in path_ends()


def missing_paths(text: str, *, at_root: bool) -> list[str]:
    files_of_blocks = OWN_FILE.findall(text)
    return [token for token in named_paths(text) if not exists(token, at_root=at_root) and token not in files_of_blocks]


@pytest.mark.parametrize("document", documents())
def test_paths_in_a_document_exist(document: str) -> None:
    at_root = document in AT_ROOT[:2]
    missing = missing_paths(text_of(document), at_root=at_root)
    assert not missing, f"{document} names paths that do not exist: {missing}"


@pytest.mark.parametrize("document", documents())
def test_links_in_a_document_lead_to_files(document: str) -> None:
    folder = (ROOT / document).parent
    missing = [target for target in LINK.findall(text_of(document)) if not (folder / target).exists()]
    assert not missing, f"{document} links to files that do not exist: {missing}"


def test_a_path_that_does_not_exist_is_found() -> None:
    text = "`cluster/no_such.py`, `cluster/nowhere/`, `nothing.py`, `cluster/broker.py`, `broker.py`, `verdict.json`"
    assert missing_paths(text, at_root=True) == ["cluster/no_such.py", "cluster/nowhere/", "nothing.py"]
    assert missing_paths("`storage/indexes/`", at_root=True) == []
    assert missing_paths("`cluster/indexes/`", at_root=False) == ["cluster/indexes/"]


# ------------------------------------------------------------------------------------- rooms


def rooms() -> list[str]:
    """Return each folder of the layers that holds modules, and each module that lies directly in a layer."""
    files = [path for layer in LAYERS for path in (ROOT / layer).rglob("*.py")]
    folders = {f"{path.parent.relative_to(ROOT).as_posix()}/" for path in files}
    modules = {
        path.relative_to(ROOT).as_posix() for path in files if path.parent.name in LAYERS and path.name != "__init__.py"
    }
    return sorted(folders | modules)


def unnamed_rooms(text: str) -> list[str]:
    named = set(QUOTED.findall(text))
    return [room for room in rooms() if room not in named]


def test_architecture_names_every_room() -> None:
    unnamed = unnamed_rooms(text_of("ARCHITECTURE.md"))
    assert not unnamed, f"ARCHITECTURE.md, 'Where things live', does not name: {unnamed}"


def test_a_room_that_is_not_named_is_found() -> None:
    text = text_of("ARCHITECTURE.md").replace("`cluster/storage/indexes/`", "")
    assert "cluster/storage/indexes/" in unnamed_rooms(text)


# ---------------------------------------------------------------------------------- glossary


def homes(text: str) -> list[str]:
    """Return the quoted names of the column "lives" of the glossary's tables."""
    rows = (line.split(" | ") for line in text.splitlines() if line.startswith("| "))
    return [name for row in rows if len(row) == 4 for name in QUOTED.findall(row[2])]


@cache
def sources() -> tuple[str, ...]:
    return tuple(path.read_text() for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))


def is_defined(name: str, attribute: str | None) -> bool:
    definition = re.compile(rf"^(?:class {name}\b|{name}\b.* = )", re.MULTILINE)
    member = re.compile(rf"\b{attribute}\b")
    return any(definition.search(text) and (attribute is None or member.search(text)) for text in sources())


def undefined_homes(text: str) -> list[str]:
    return [
        name
        for name in homes(text)
        if not is_path(name) and (match := CLASS.fullmatch(name)) and not is_defined(*match.groups())
    ]


def test_classes_in_the_glossary_are_defined() -> None:
    found = homes(text_of("docs/glossary.md"))
    assert len(found) > 80
    assert undefined_homes(text_of("docs/glossary.md")) == []


def test_a_class_that_is_not_defined_is_found() -> None:
    row = "| log | The log. | `{}` | former |"
    assert undefined_homes(row.format("storage.Log")) == []
    assert undefined_homes(row.format("Log.no_such_member")) == ["Log.no_such_member"]
    assert undefined_homes(row.format("NoSuchClass")) == ["NoSuchClass"]


# ------------------------------------------------------------------- control socket


def head(path: str) -> str:
    return ast.get_docstring(ast.parse((ROOT / path).read_text())) or ""


def table(text: str) -> set[str]:
    """Return the first column of the table in a module's head."""
    return set(re.findall(r"^    ([a-z][a-z_.-]*) {2,}\S", text, re.MULTILINE)) - {"op"}


@cache
def strings() -> frozenset[str]:
    """Return every string of the cluster's code that is not a docstring."""
    return frozenset(
        node.value
        for path in (ROOT / "cluster").rglob("*.py")
        for node in nodes_of(tree_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value
    )


@pytest.mark.xdist_group("tidy")
def test_the_control_socket_documents_every_operation() -> None:
    documented = table(head("cluster/host/knobs/control.py"))
    operations = {text for text in strings() if re.fullmatch(r"(?:links|responses|failpoint|disk)\.[a-z]+", text)}
    assert len(documented) > 15
    assert operations - EVENT_KINDS.keys() - documented == set()
    assert documented - strings() == set()


def missing_in_head(path: Path) -> list[str]:
    """Return the files that a module's head names and that do not exist.

    A name without a folder is a file beside the module, below it, or in a folder above it.
    """
    head = ast.get_docstring(tree_of(path)) or ""
    found: list[str] = []
    for name in named_paths(head):
        near = any((folder / name).exists() for folder in path.parents) or any(path.parent.rglob(name))
        if not (near or ("/" in name and exists(name, at_root=False))):
            found.append(f"{path}: {name}")
    return found


def test_files_that_a_module_head_names_exist() -> None:
    heads = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]
    assert len(heads) > 500
    missing = [text for path in heads for text in missing_in_head(path)]
    assert not missing, "\n".join(missing)


def test_a_file_that_does_not_exist_is_found_in_a_head(tmp_path: Path) -> None:
    head = tmp_path / "room.py"
    head.write_text('"""Reads what `gone.py` wrote, beside `room.py`; `harness/gone.py` too."""\n')
    assert missing_in_head(head) == [f"{head}: gone.py", f"{head}: harness/gone.py"]
