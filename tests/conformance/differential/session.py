"""Runs cases on one system: resolves what a body refers to, repeats what is transient, and keeps every outcome.

Owns: the connections to the brokers, the ids that the system gave topics, and the numbers in names. Two sessions that
run the same cases use the same names. A `later` step is sent at once and awaited by the next step of its client.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from . import batches
from .cases import Case, Json, Step, is_rows, is_struct, look_up
from .link import TIMEOUT_S, Link, Outcome

PATIENCE_S = {"setup": 15.0, "probe": 0.5, "target": 1.5, "cleanup": 0.1}
"""How long a request is repeated while its error is transient, by the role of its step."""
BETWEEN_TRIES_S = 0.02
PREPARING_TIMEOUT_S = 20.0
"""For the response to a set-up step: a new world has many topics, and the machine may be busy."""
ASKED_TIMES = 5
PRODUCE = "Produce"
GIVES_IDS = frozenset({"CreateTopics", "Metadata"})
"""Responses with the ids of topics; others also repeat what a request says."""


class Session:
    """One system as the cases see it: `ports` by node id, `topic_ids` by name."""

    def __init__(self, name: str, ports: Mapping[int, int]) -> None:
        self.name = name
        self.ports = ports
        self.topic_ids: dict[str, str] = {}
        self._links: dict[tuple[int, int], Link] = {}
        self._world = self._case = ""

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()

    def ask(self, api: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
        """Asks node 1, several times; ConnectionError without a response."""
        link = Link(self.ports[min(self.ports)])
        kind = ""
        for _ in range(ASKED_TIMES):
            outcome = link.ask(api, version, body)
            kind = outcome.kind
            if kind == "response":
                link.close()
                return outcome.body
        raise ConnectionError(f"{self.name}: {api} v{version} ended {ASKED_TIMES} times as {kind}")

    def use_producer_ids(self, most: int) -> None:
        """Uses up the producer ids up to `most`; ConnectionError without a response."""
        link = Link(self.ports[min(self.ports)])
        body = {"transactionalId": None, "transactionTimeoutMs": 1}
        found = -1
        while found <= most:
            outcome = link.ask("InitProducerId", 1, body, timeout_s=PREPARING_TIMEOUT_S)
            if outcome.kind != "response":
                raise ConnectionError(f"{self.name}: InitProducerId ended as {outcome.kind}")
            found = outcome.body["producerId"]
        link.close()

    def run(self, case: Case, world: str, number: str) -> list[Outcome]:
        """Runs all steps; returns an outcome for each."""
        self._world, self._case = world, number
        outcomes: list[Outcome] = []
        open_steps: dict[int, tuple[int, Step, int]] = {}
        for step in case.steps:
            self._await(open_steps.pop(step.client, None), outcomes)
            body = self._resolved(step.body, outcomes)
            if step.later:
                sent = self._link(step).send(step.api, step.version, body)
                open_steps[step.client] = (len(outcomes), step, sent)
                outcomes.append(Outcome(kind="open"))
            else:
                outcomes.append(self._patiently(step, body))
        for waiting in open_steps.values():
            self._await(waiting, outcomes)
        for client, node in [key for key in self._links if key[0]]:
            self._links.pop((client, node)).close()
        return outcomes

    def again(self, case: Case, index: int, outcomes: list[Outcome]) -> Outcome:
        """Sends a step that only reads a second time."""
        step = case.steps[index]
        return self._patiently(step, self._resolved(step.body, outcomes))

    def _await(self, waiting: tuple[int, Step, int] | None, outcomes: list[Outcome]) -> None:
        if waiting is not None:
            index, step, sent = waiting
            link = self._link(step)
            outcomes[index] = link.receive(step.api, step.version, sent, TIMEOUT_S)

    def _link(self, step: Step) -> Link:
        key = (step.client, step.node)
        if key not in self._links:
            self._links[key] = Link(self.ports[step.node])
        return self._links[key]

    def _patiently(self, step: Step, body: dict[str, Any]) -> Outcome:
        end = time.monotonic() + PATIENCE_S[step.role]
        pause = threading.Event()
        while True:
            outcome = self._once(step, body)
            if _is_done(step, outcome) or time.monotonic() > end:
                if step.api in GIVES_IDS:
                    self._learn(outcome.body)
                return outcome
            pause.wait(BETWEEN_TRIES_S)

    def _once(self, step: Step, body: dict[str, Any]) -> Outcome:
        link = self._link(step)
        tail = bytes.fromhex(step.tail)
        if step.api == PRODUCE and body.get("acks") == 0:
            return _without_response(link, step, body)
        timeout_s = PREPARING_TIMEOUT_S if step.role == "setup" else TIMEOUT_S
        return link.ask(step.api, step.version, body, cut=step.cut, tail=tail, timeout_s=timeout_s)

    def _learn(self, body: Json) -> None:
        for row in structs(body):
            name = row.get("name")
            if isinstance(name, str) and row.get("topicId", "0" * 32) != "0" * 32:
                self.topic_ids[name] = row["topicId"]

    def ids_of(self, world: str) -> dict[str, str]:
        """Returns the ids of the topics of a world that this session knows."""
        return {name: identity for name, identity in self.topic_ids.items() if world in name}

    # ---------------------------------------------------------------- values

    def named(self, text: str) -> str:
        """Returns a name of a case as this run has it."""
        return text.replace("~", self._world).replace("%", self._case)

    def _resolved(self, value: Json, outcomes: list[Outcome]) -> Json:
        if isinstance(value, str):
            return self.named(value)
        if is_rows(value):
            return [self._resolved(each, outcomes) for each in value]
        if not is_struct(value):
            return value
        if "$ref" in value:
            step: int = value["$ref"][0]
            path: str = value["$ref"][1]
            return _at(outcomes[step].body, path, value.get("$else", -1))
        if "$topicId" in value:
            return self.topic_ids.get(self.named(value["$topicId"]), "f" * 32)
        if "$time" in value:
            return batches.BASE_MS + value["$time"]
        if "$hex" in value:
            return bytes.fromhex(value["$hex"]) + self.named(value.get("$name", "")).encode()
        if "$batches" in value:
            described = [self._resolved(each, outcomes) for each in value["$batches"]]
            return b"".join(map(_batch, described)) + bytes.fromhex(value.get("tail", ""))
        return {key: self._resolved(each, outcomes) for key, each in value.items()}


def _batch(described: dict[str, Any]) -> bytes:
    """Encodes a batch whose keys and values may be strings, as in JSON."""
    records = [{key: _bytes(each) for key, each in record.items()} for record in described.get("records", [{}])]
    for record in records:
        if "headers" in record:
            record["headers"] = [[_bytes(part) for part in pair] for pair in record["headers"]]
    fields = {**described, "records": records}
    if described.get("payload") is not None:
        fields["payload"] = _bytes(described["payload"])
    return batches.encode(fields)


def _bytes(value: Json) -> Json:
    return value.encode() if isinstance(value, str) else value


def _without_response(link: Link, step: Step, body: dict[str, Any]) -> Outcome:
    """Sends a Produce with acks=0 and a request behind it: what arrives first says what became of it."""
    link.send(step.api, step.version, body)
    behind = link.ask("ApiVersions", 0, {})
    return Outcome(kind="no response") if behind.kind == "response" else behind


def structs(body: Json) -> Iterator[dict[str, Json]]:
    """Yields every struct of a body, the body first."""
    if is_struct(body):
        yield body
        for value in body.values():
            yield from structs(value)
    elif is_rows(body):
        for value in body:
            yield from structs(value)


def _is_done(step: Step, outcome: Outcome) -> bool:
    """True unless the step is to be repeated for a while."""
    codes = set(error_codes(outcome.body))
    if outcome.kind == "response" and step.until is not None:
        return step.until in codes
    if step.until_filled and not _at(outcome.body, step.until_filled):
        return False
    return not codes & set(step.transient) and not (step.until_empty and _at(outcome.body, step.until_empty))


def _at(body: Json, path: str, missing: Json = None) -> Json:
    """The value at a path such as `a.0.b`; `missing` where there is none."""
    try:
        return look_up(body, [int(key) if key.isdigit() else key for key in path.split(".")])
    except (LookupError, TypeError):
        return missing


def error_codes(body: Json) -> Iterator[int]:
    """Yields every error code of a body, also those with a longer name such as `partitionErrorCode`."""
    for row in structs(body):
        yield from (value for name, value in row.items() if name.endswith("rrorCode"))
