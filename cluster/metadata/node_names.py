"""Names of any text as names of registry nodes.

Owns: the encoding. Source: Kafka's Sanitizer.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

__all__ = ["name_of_node", "node_of_name"]


def node_of_name(name: str) -> str:
    """The name of the node; `.` and `..` are no names of nodes, and `/` separates them."""
    encoded = quote(name, safe="").replace("~", "%7E")
    return encoded.replace(".", "%2E") if not encoded.strip(".") else encoded


def name_of_node(node: str) -> str:
    """The inverse of `node_of_name`."""
    return unquote(node)
