"""The rules of retry topics and dead letters in plain Python (L5): part of `oracle_of_pipelines.py`.

The head of `retry_checks.py` defines the rules. Where the checks count, the oracle tries every way in which inputs can
have outputs and dead letters, and takes the one with the fewest anomalies.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence

from harrow.harness.checks.record import Record
from harrow.harness.histories.commits import NEVER
from harrow.harness.promises.retries import REASON_HEADERS

WITHOUT_REASON = "dead-letter-without-reason"
BOTH, DUPLICATE, UNEXPECTED = "output-and-dead-letter", "duplicate-output", "unexpected-output"


class Fates:
    """What became of the inputs of one record id."""

    def __init__(self, inputs: Sequence[Record], letters: Sequence[Record], time_of: Callable[[Record], int]) -> None:
        self._inputs = inputs
        self._letters = letters
        self._time_of = time_of

    def of(self, inputs: Sequence[Record]) -> list[Record]:
        """Return the dead letters that may be of one of these inputs."""
        return [letter for letter in self._letters if any(self._fits(letter, given) for given in inputs)]

    def covered(self, inputs: Sequence[Record]) -> bool:
        """True where all of these inputs were written before one of their dead letters."""
        return any(
            all(self._time_of(given) < (self._time_of(letter) or NEVER) for given in inputs)
            for letter in self.of(inputs)
        )

    def judge(self, classes: Sequence[tuple[Sequence[Record], int]]) -> Counter[str]:
        """Return what the dead letters show. `classes`: the inputs of each expected output, and its outputs."""
        bad = Counter({WITHOUT_REASON: sum(map(self._lacks_something, self._letters))})
        if not self._inputs:
            return bad + Counter({UNEXPECTED: len(self._letters)})
        both = [self._least_with_both(inputs, outputs) for inputs, outputs in classes]
        return bad + Counter({BOTH: max(both, default=0), DUPLICATE: self._fewest_left()})

    def _lacks_something(self, letter: Record) -> bool:
        """True for a dead letter without a reason, or with a key or a value of no input."""
        reasons = {value for name, value in letter.headers if name in REASON_HEADERS and value}
        contents = {(given.key, given.value) for given in self._inputs}
        return not reasons or (bool(contents) and (letter.key, letter.value) not in contents)

    def _fits(self, letter: Record, given: Record) -> bool:
        same = [other for other in self._inputs if (other.key, other.value) == (letter.key, letter.value)]
        return not same or (given.key, given.value) == (letter.key, letter.value)

    def _least_with_both(self, inputs: Sequence[Record], outputs: int) -> int:
        """Return the least number of inputs that have an output and a dead letter."""
        per_input = Counter(map(id, inputs))
        names = list(per_input)
        with_output = next(count for count in range(outputs + 1) if count * max(per_input.values()) >= outputs)
        dead = min(len(names), len(self.of(inputs)))
        return min(
            len({*some} & {*others})
            for some in itertools.combinations(names, min(len(names), with_output))
            for others in itertools.combinations(names, dead)
        )

    def _fewest_left(self) -> int:
        """Return how many dead letters are left when as many as possible have an input of their own."""
        places = [*range(len(self._inputs)), *[None] * len(self._letters)]
        return min(
            chosen.count(None)
            for chosen in itertools.permutations(places, len(self._letters))
            if all(
                at is None or self._fits(letter, self._inputs[at])
                for letter, at in zip(self._letters, chosen, strict=True)
            )
        )
