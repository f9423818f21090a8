"""Parsed source files of the project, each parsed once in a process, for the rules that read them."""

from __future__ import annotations

import ast
import functools
import gc
from pathlib import Path


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """Return the parsed file, for every rule that reads it."""
    tree = ast.parse(path.read_text())
    gc.freeze()  # Else the collector walks through all trees again and again.
    return tree


@functools.cache
def nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return all nodes of a parsed file: several rules walk through each."""
    nodes = tuple(ast.walk(tree))
    gc.freeze()
    return nodes


def last_name(called: ast.expr) -> str:
    """Return `c` of `a.b.c` or of `c`: much cheaper than the text of the whole expression."""
    if isinstance(called, ast.Attribute):
        return called.attr
    return called.id if isinstance(called, ast.Name) else ""
