"""What an armed request rule notes of the clients that use its API, and of those that do not (K2)."""

from __future__ import annotations

from harrow.cluster.host.knobs.request_rules import RequestRule, RequestRules
from harrow.cluster.host.knobs.seen_clients import APIS_MOST, CLIENTS_MOST, SeenClients
from harrow.cluster.host.seam import Peer, RequestBody, RequestFacts

COMMIT, FETCH, PRODUCE = 8, 1, 0


def client(name: str) -> Peer:
    return Peer(kind="client", name=name)


class Asked:
    """A request of an API that nothing reads."""

    def __init__(self, api_key: int) -> None:
        self.api_key, self.version, self.frame, self.body_at = api_key, 0, b"", 0

    def facts_of(self, request: RequestBody) -> RequestFacts:
        raise AssertionError("no rule chooses by what a request is about")


def ask(rules: RequestRules[RequestRule], peer: Peer, api: int) -> RequestRule | None:
    asked = Asked(api)
    return rules.fire(peer, asked, asked)


def test_a_rule_that_matches_no_client_reports_who_used_its_api_and_who_did_not() -> None:
    rules = RequestRules[RequestRule]()
    ask(rules, client("before"), COMMIT)
    rules.arm(RequestRule(id=1, api_key=COMMIT, nth=1, client="billing*"))
    for peer, api in (
        (client("one-0"), COMMIT),
        (client("two"), FETCH),
        (client("one-0"), COMMIT),
        (client("two"), PRODUCE),
        (Peer(kind="broker", name="2"), FETCH),
    ):
        assert ask(rules, peer, api) is None
    (row,) = rules.report()
    assert (row["seen"], row["armed"]) == (0, True)
    assert row["clients"] == {"one-0": 2}
    assert row["others"] == {"two": [FETCH, PRODUCE]}
    assert row["more_clients"] is False


def test_what_is_noted_is_bounded() -> None:
    seen = SeenClients(COMMIT)
    for number in range(10 * CLIENTS_MOST):
        seen.note(client(f"a-{number}"), COMMIT)
        seen.note(client(f"b-{number}"), FETCH)
    for api in range(100, 100 + 10 * APIS_MOST):
        seen.note(client("b-0"), api)
    row = seen.to_json()
    assert len(row["clients"]) == len(row["others"]) == CLIENTS_MOST
    assert len(row["others"]["b-0"]) == APIS_MOST
    assert row["more_clients"] is True
