"""Rules of requests: which requests count, on which of them a rule acts, and predicates on requests (K2)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from harrow.cluster.errors import ConfigError
from harrow.cluster.host.knobs.request_rules import RequestRule, RequestRules, rule_fields
from harrow.cluster.host.knobs.request_where import Where
from harrow.cluster.host.seam import Peer, RequestBody, RequestFacts

PRODUCE, FETCH = 0, 1
ORDERS = RequestFacts(
    topics=frozenset(("orders", "bills")),
    partitions=frozenset((("orders", 0), ("bills", 1))),
    groups=frozenset(("billing",)),
)


class Asked:
    """A request, and what reads it: counts how often it was read."""

    version = 9
    frame = b""
    body_at = 0

    def __init__(self, api_key: int = PRODUCE, facts: RequestFacts = ORDERS) -> None:
        self.api_key = api_key
        self.facts = facts
        self.reads = 0

    def facts_of(self, request: RequestBody) -> RequestFacts:
        assert request is self
        self.reads += 1
        return self.facts


class Bench:
    """Armed rules, and requests of one client."""

    def __init__(self, *rules: dict[str, Any]) -> None:
        self.rules = RequestRules[RequestRule]()
        for given in rules:
            self.arm(**given)

    def arm(self, **given: Any) -> None:
        fields = rule_fields({"api_key": PRODUCE, **given})
        self.rules.arm(RequestRule(id=self.rules.next_id(), **fields))

    def ask(self, asked: Asked | None = None, client: str = "shop") -> int:
        """The id of the rule that acts on one request; 0 for none."""
        request = Asked() if asked is None else asked
        rule = self.rules.fire(Peer("client", client), request, request)
        return 0 if rule is None else rule.id

    def asked(self, times: int) -> list[int]:
        return [self.ask() for _ in range(times)]


def test_a_rule_acts_on_as_many_requests_from_the_nth_on() -> None:
    bench = Bench({"nth": 3, "count": 2})
    assert bench.asked(6) == [0, 0, 1, 1, 0, 0]
    (row,) = bench.rules.report()
    assert (row["seen"], row["fired"], row["armed"], row["where"]) == (4, 2, False, None)


def test_a_request_counts_for_a_rule_although_another_rule_acts_on_it() -> None:
    assert Bench({"nth": 1}, {"nth": 2}).asked(3) == [1, 2, 0]
    assert Bench({"nth": 2}, {"nth": 1}).asked(3) == [2, 1, 0]


def test_of_two_rules_for_one_request_the_later_one_acts_on_the_next() -> None:
    assert Bench({"nth": 2}, {"nth": 2}).asked(4) == [0, 1, 2, 0]


def test_requests_are_drawn_by_the_seed_alike_in_every_run() -> None:
    given = {"count": 50, "probability": 0.3, "seed": 11}
    first, second = Bench(given).asked(60), Bench(given).asked(60)
    draws = random.Random(11)
    assert first == second == [int(draws.random() < 0.3) for _ in range(60)]
    assert Bench({**given, "seed": 12}).asked(60) != first
    assert 5 < sum(first) < 35


def test_a_request_of_another_api_or_client_or_predicate_does_not_count() -> None:
    bench = Bench({"nth": 2, "client": "shop*", "where": {"topic": "orders"}})
    assert not bench.ask(Asked(FETCH))
    assert not bench.ask(client="other")
    assert not bench.ask(Asked(facts=RequestFacts(topics=frozenset(("bills",)))))
    assert bench.rules.report()[0]["seen"] == 0
    assert bench.asked(2) == [0, 1]


def test_a_request_is_read_only_for_a_predicate_and_once_for_several() -> None:
    plain = Asked()
    Bench({"nth": 9}).ask(plain)
    assert plain.reads == 0
    chosen = Asked()
    Bench({"nth": 9, "where": {"topic": "orders"}}, {"nth": 9, "where": {"group": "x"}}).ask(chosen)
    assert chosen.reads == 1
    other = Asked(FETCH)
    Bench({"nth": 9, "where": {"topic": "orders"}}).ask(other)
    assert other.reads == 0


@pytest.mark.parametrize(
    ("where", "accepted"),
    [
        ({"topic": "orders"}, True),
        ({"topic": "ord*"}, True),
        ({"topic": "order"}, False),
        ({"topic": "orders", "partition": 0}, True),
        ({"topic": "orders", "partition": 1}, False),
        ({"partition": 1}, True),
        ({"partition": 2}, False),
        ({"group": "billing", "topic": "bills"}, True),
        ({"group": "shipping", "topic": "bills"}, False),
        ({"transactional_id": "*"}, False),
    ],
)
def test_all_fields_of_a_predicate_hold_for_the_request(where: dict[str, Any], accepted: bool) -> None:
    assert Where.parse(where).accepts(ORDERS) is accepted
    assert Where.parse(where).to_json() == where


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({}, "expected one of topic, partition, group, transactional_id"),
        ({"topics": "orders"}, "did you mean 'topic'"),
        ({"partition": "0"}, "expected a number from 0 up"),
        ({"partition": True}, "expected a number from 0 up"),
        ({"topic": 3}, "expected a name or a pattern"),
    ],
)
def test_a_wrong_predicate_is_refused(where: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Where.parse(where)


@pytest.mark.parametrize("given", [{"nth": 0}, {"count": 0}, {"probability": 0}, {"probability": 1.1}])
def test_wrong_numbers_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(given))}="):
        Bench(given)
