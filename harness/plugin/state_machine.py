"""`HarrowMachine`: a state machine of Hypothesis whose rules are faults and the operations of the user's application.

A subclass has rules for what the application does. The base class has the rules `inject` and `heal`: a fault of the
kinds `kinds` is injected at once, without waiting for traffic, and lasts for its seconds or until `heal`. So Hypothesis
decides which operations meet it. At the end of each example the fault is healed and the run is judged. An example that
fails shrinks to the fewest operations and faults.

```python
class ShopMachine(HarrowMachine):
    def begin(self):
        self.orders = self.topic("orders")
        self.shop = Shop(self.harrow.bootstrap_servers)

    @rule(count=st.integers(1, 20))
    def place_orders(self, count):
        self.shop.place(count)

def test_the_shop_loses_no_order(harrow_examples):
    ShopMachine.run(harrow_examples)
```

An example that proves nothing, such as a fault that met no operation, has the verdict unknown: it is no counterexample.
A test without any valid example fails, and says why the last one was not judged.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from harrow.cluster.errors import ConfigError, HarrowError
from harrow.faults.planning import DEFAULT_RANDOM
from harrow.faults.schedule import Schedule, ScheduledFault
from harrow.faults.spec import Fault, Seconds
from harrow.faults.strategies import SECONDS, faults
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from hypothesis.strategies import SearchStrategy, runner

from ..errors import VerdictError

if TYPE_CHECKING:
    from ..chaos.blocks import Chaos
    from ..topics import Topic
    from .examples import HarrowExamples

VALID, INVALID = "valid", "invalid"
"""Values of `checks.Status`."""
cluster_settings = settings(
    max_examples=10,
    stateful_step_count=8,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
"""Settings of Hypothesis for examples that last seconds: a decorator, or `settings(cluster_settings, max_examples=50)`.

Ten examples, no deadline, and no phase that explains a failure: it would run hundreds of examples more.
"""


class HarrowMachine(RuleBasedStateMachine):
    """Base class of state machines on a cluster; see the module's head."""

    kinds: ClassVar[Sequence[str] | Mapping[str, int]] = DEFAULT_RANDOM
    """The kinds of faults of the rule `inject`, as in `harrow.chaos(kinds=…)`."""
    seconds: ClassVar[Seconds] = SECONDS
    """How long a fault lasts that is not healed before: a number or a (least, most) pair."""
    guarantee: ClassVar[str | None] = None
    """What `judge` requires; None derives it from the settings of the producers."""

    def __init__(self, examples: HarrowExamples | None = None) -> None:
        """Begin an example of the test that runs. ConfigError without the fixture `harrow_examples`."""
        super().__init__()
        if examples is None:
            name = type(self).__name__
            raise ConfigError(
                f"{name} needs a cluster for each example: call {name}.run(harrow_examples) in a test function that "
                f"has the fixture harrow_examples, instead of {name}.TestCase"
            )
        self._closing = contextlib.ExitStack()
        self.harrow = self._closing.enter_context(examples())
        """The cluster of this example (`harrow.Harrow`)."""
        self._topics: list[Topic] = []
        self._block: Chaos | None = None
        self._injected = 0
        self._operations = 0
        """Rules of the subclass that ran since the last fault was injected, or healed."""
        try:
            self.begin()
        except BaseException:
            self._closing.__exit__(*sys.exc_info())
            raise

    @classmethod
    def run(cls, examples: HarrowExamples, settings: settings = cluster_settings) -> None:
        """Run the machine as a test; `settings.max_examples` and `settings.stateful_step_count` bound it.

        HarrowError where no example had a valid verdict: the test would prove nothing.
        """
        make = cast("type[RuleBasedStateMachine]", lambda: cls(examples))  # a function is enough
        run_state_machine_as_test(make, settings=settings)
        seen = examples.current
        if not seen.statuses[VALID]:
            raise HarrowError(
                f"{cls.__name__}: none of the examples {seen.counted()} has a valid verdict, so nothing was proved: "
                f"{seen.last_unknown or 'no rule sent a record'}"
            )

    def topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> Topic:
        """Create a topic as `Harrow.topic` does; faults then hit its leaders and followers, too."""
        self._topics.append(self.harrow.topic(name, partitions, replication_factor, config))
        return self._topics[-1]

    # ------------------------------------------------------------------- what a subclass overrides

    def begin(self) -> None:
        """Create the topics and the application of an example."""

    def end(self) -> None:
        """Bring the application to its end before the verdict, such as by a flush; the fault is healed."""

    def judge(self) -> None:
        """Judge the example: all topics, by `guarantee`."""
        self.harrow.verify(guarantee=self.guarantee)

    # ------------------------------------------------------------------------------------- rules

    def possible_faults(self) -> SearchStrategy[Fault]:
        """Return the faults of the rule `inject`: those of `kinds` that the backend can inject, on the topics."""
        from ..run.harrow import run_of

        kinds: Sequence[str] | Mapping[str, int] = run_of(self.harrow).possible_kinds(list(self.kinds))
        if isinstance(self.kinds, Mapping):
            kinds = {name: self.kinds.get(name, 1) for name in kinds}
        return faults(kinds=kinds, topics=self._topics, seconds=self.seconds)

    @precondition(lambda self: self._block is None and self._operations > 0)
    @rule(fault=runner().flatmap(lambda machine: machine.possible_faults()))
    def inject(self, fault: Fault) -> None:
        """Inject a fault after an operation: it lasts for its seconds, and at most until `heal` or the end."""
        self._injected += 1
        self._operations = -1  # this rule is counted, too
        step = ScheduledFault(id=str(self._injected), fault=fault, required=False)
        block = self.harrow.chaos(schedule=Schedule(steps=(step,), cap=len(self.harrow.cluster.brokers)))
        self._block = block
        block.inject()

    @precondition(lambda self: self._block is not None and self._operations > 0)
    @rule()
    def heal(self) -> None:
        """Heal the fault, after an operation at least: a fault that met none would prove nothing."""
        self._operations = -1
        block, self._block = self._block, None
        if block is not None:
            block.heal()

    def check_invariants(self, *given: Any, **named: Any) -> None:
        """Count the step: Hypothesis calls this after each rule."""
        self._operations += 1
        super().check_invariants(*given, **named)

    def teardown(self) -> None:
        """Heal, judge the example unless a rule failed, and stop its cluster."""
        failure = sys.exc_info()  # Hypothesis calls it in a `finally`
        if failure[1] is not None:
            with contextlib.suppress(HarrowError):
                self.heal()
            self._closing.__exit__(*failure)
            return
        with self._closing:
            self.heal()
            self.end()
            try:
                self.judge()
            except VerdictError as error:
                if error.verdict.status == INVALID:
                    raise
