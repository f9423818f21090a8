"""`docs/authorization.md` has what each request asks the authorizer, and its errors, as a broker does (A5).

The table is made of a broker's responses under ACLs that allow or deny one operation each. `PYTHONPATH=tests/support
python tests/cluster/test_authorization_of_requests.py` writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from authorized_kafka import our_broker
from authorized_requests import BEFORE_AUTHORIZATION, CLUSTER, OPERATIONS, SETTINGS, Matrix, matrix, served
from harrow.cluster.wire.api_keys import INTER_BROKER_APIS, ApiKey

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "authorization.md"
BEGIN, END = "<!-- authorization: generated -->", "<!-- end of authorization -->"
HEAD = ("| key | request | needs | errors |", "| --- | --- | --- | --- |")
FAILED = "_AUTHORIZATION_FAILED"


def decides(found: Matrix, api: ApiKey, acls: str, others: str) -> bool:
    """Whether a response to a request of `api` has other errors or other items under the other ACLs."""
    mine = [asked for asked in found["all"] if asked.api is api]
    return any(found[acls][asked][part] != found[others][asked][part] for asked in mine for part in ("errors", "items"))


def needed(found: Matrix, api: ApiKey) -> str:
    """The operations whose denial changes a response, and those on the cluster that can stand for them."""
    rows = [(kind, f"{operation.name} on {kind.name}") for kind in OPERATIONS for operation in OPERATIONS[kind]]
    both = [
        name
        for kind, name in rows
        if decides(found, api, "all", f"all but {name}")
        or (kind is not CLUSTER and decides(found, api, "all but CLUSTER", f"all but CLUSTER and {name}"))
    ]
    helping = [name for kind, name in rows if kind is CLUSTER and decides(found, api, "none", f"only {name}")]
    implied = {name.replace("DESCRIBE", "ALTER") for name in helping if "DESCRIBE" in name}
    instead = [name for name in helping if name not in both and name not in implied]
    return " or ".join(filter(None, (", ".join(both), *instead))) or "none"


def errors_of(found: Matrix, api: ApiKey) -> Iterator[str]:
    """The errors that name a missing permission, under any ACLs."""
    seen = {
        error
        for outcomes in found.values()
        for asked, outcome in outcomes.items()
        if asked.api is api
        for error in outcome["errors"].values()
    }
    yield from sorted(error for error in seen if error.endswith(FAILED))


def table(found: Matrix) -> list[str]:
    apis = sorted({asked.api for asked in found["none"]})
    rows = [
        f"| {int(api)} | {api.name.title().replace('_', '')} | {needed(found, api)} "
        f"| {', '.join(f'`{error}`' for error in errors_of(found, api)) or 'none'} |"
        for api in apis
    ]
    return [*HEAD, *rows]


@pytest.fixture(scope="module")
def found() -> Matrix:
    with our_broker(**SETTINGS) as broker:
        return matrix(broker)


def test_the_table_of_the_page_is_what_a_broker_does(found: Matrix) -> None:
    written = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert written.split("\n")[1:-1] == table(found)


def test_every_request_of_clients_is_in_the_table(found: Matrix) -> None:
    with our_broker() as broker:
        listed = {ApiKey(key) for key in served(broker)}
    assert {asked.api for asked in found["none"]} == listed - BEFORE_AUTHORIZATION - INTER_BROKER_APIS


def test_a_client_with_all_permissions_is_never_refused(found: Matrix) -> None:
    errors = {asked: " ".join(outcome["errors"].values()) for asked, outcome in found["all"].items()}
    assert [asked for asked, text in errors.items() if FAILED in text] == []


@pytest.mark.parametrize("api", [ApiKey.METADATA, ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS])
def test_requests_that_leave_out_what_a_client_may_not_see_have_no_error(found: Matrix, api: ApiKey) -> None:
    kinds = {"all", ""} if api is not ApiKey.METADATA else {"all"}
    (outcome,) = [row for asked, row in found["none"].items() if asked.api is api and asked.kind in kinds]
    assert set(outcome["errors"].values()) <= {"NONE"}
    assert set(outcome["items"].values()) <= {0}


if __name__ == "__main__":
    with our_broker(**SETTINGS) as own:
        text = "\n".join([BEGIN, *table(matrix(own)), END])
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: text, page, flags=re.DOTALL), encoding="utf-8")
