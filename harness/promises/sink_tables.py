"""The rows of a query as the sink of a pipeline (L5): SQLite by its file, other databases by SQLAlchemy or DB-API.

The text of a query goes to the database as it is: SQLAlchemy neither looks for parameters in it nor commits it.

May fail: ConfigError for a query that fails, a file that does not exist, a URL without SQLAlchemy or its driver.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harrow.cluster.errors import ConfigError

FETCH_ROWS = 1 << 13


def query_rows(source: Any, query: str) -> Generator[Mapping[str, Any]]:
    """Yield the rows of a query, or of the table that `query` names, as mappings."""
    sql = query if " " in query else f"select * from {query}"  # noqa: S608  (the user's own)
    if isinstance(source, (str, Path)):
        text = str(source)
        if _is_sqlite(text):
            yield from _query_sqlite(text, sql)
            return
        engine = _engine(text)
        try:
            yield from _query_sqlalchemy(engine, sql)
        finally:
            engine.dispose()
        return
    if hasattr(source, "dialect"):
        yield from _query_sqlalchemy(source, sql)
    elif hasattr(source, "cursor"):
        yield from _query_connection(source, sql)
    else:
        raise ConfigError(
            f"table({source!r:.80}, …): expected a URL such as sqlite:///shop.db, an engine of SQLAlchemy, or a DB-API "
            "connection (an object with a method cursor)"
        )


def _is_sqlite(text: str) -> bool:
    if text.startswith("sqlite:///"):
        return True
    return "://" not in text and (text.endswith((".db", ".sqlite", ".sqlite3")) or Path(text).is_file())


def _query_sqlite(text: str, sql: str) -> Generator[Mapping[str, Any]]:
    path = Path(text.removeprefix("sqlite:///"))
    if not path.is_file():
        raise ConfigError(
            f"table({text!r}, …): there is no file {path.absolute()}; give the path of the database that the job writes"
        )
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        yield from _query_connection(connection, sql)


def _query_connection(connection: Any, sql: str) -> Generator[Mapping[str, Any]]:
    with contextlib.closing(connection.cursor()) as cursor:
        try:
            cursor.execute(sql)
        except Exception as error:
            raise _failed(error, sql) from error
        if cursor.description is None:
            raise _returns_no_rows(sql)
        names = [column[0] for column in cursor.description]
        while rows := cursor.fetchmany(FETCH_ROWS):
            for row in rows:
                values = row.values() if isinstance(row, Mapping) else row  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
                yield dict(zip(names, values, strict=True))  # pyright: ignore[reportUnknownArgumentType]


def _failed(error: Exception, sql: str) -> ConfigError:
    return ConfigError(f"the query of the sink failed: {type(error).__name__}: {error}; the query is {sql}")


def _returns_no_rows(sql: str) -> ConfigError:
    return ConfigError(f"the query of the sink returns no rows, expected a SELECT: {sql}")


def _engine(url: str) -> Any:
    if find_spec("sqlalchemy") is None:
        raise ConfigError(
            f"table({url!r}, …): a URL of a database other than SQLite needs SQLAlchemy, which is not installed; "
            "install it (pip install sqlalchemy), or give a DB-API connection"
        )
    from importlib import import_module

    try:
        return import_module("sqlalchemy").create_engine(url)
    except Exception as error:  # a URL that is none, or a driver that is not installed
        raise ConfigError(
            f"table({url!r}, …): SQLAlchemy cannot use this URL: {type(error).__name__}: {error}"
        ) from error


def _query_sqlalchemy(source: Any, sql: str) -> Generator[Mapping[str, Any]]:
    opened = source.connect() if hasattr(source, "connect") else contextlib.nullcontext(source)
    has_rows = True
    try:
        with opened as connection:
            result = connection.exec_driver_sql(sql, execution_options={"no_parameters": True})
            has_rows = result.returns_rows
            for row in result if has_rows else ():
                yield dict(row._mapping)  # noqa: SLF001  (its documented name)
    except Exception as error:
        raise _failed(error, sql) from error
    if not has_rows:
        raise _returns_no_rows(sql)
