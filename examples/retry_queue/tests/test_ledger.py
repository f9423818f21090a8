from __future__ import annotations

from retry_queue.ledger import Ledger
from retry_queue.records import Record


def order(offset: int, key: bytes | None = b"Ada") -> Record:
    headers = (("trace", b"7"),)
    return Record(topic="orders", partition=0, offset=offset, key=key, value=b"{}", headers=headers)


def delayed(record: Record, attempts: int = 1, due_ms: int = 100) -> Record:
    return record.failed("orders-delay", attempts=attempts, reason="no tax rate", due_ms=due_ms)


def ledger_of(*changes: Record) -> Ledger:
    """Return a ledger that was restored from changes."""
    values: dict[bytes, Record] = {}
    for change in changes:
        assert change.key is not None
        if change.value is None:
            values.pop(change.key)
        else:
            values[change.key] = change
    ledger = Ledger("orders-open", "orders")
    ledger.restore(0, values)
    return ledger


def test_a_later_input_of_a_key_waits_behind_the_earlier_ones() -> None:
    ledger = ledger_of()
    ledger.waits(delayed(order(3)))
    assert ledger.is_behind(order(7))
    assert not ledger.is_behind(order(3))
    assert not ledger.is_behind(order(2))
    assert not ledger.is_behind(order(7, key=b"Grace"))


def test_inputs_without_a_key_do_not_wait() -> None:
    ledger = ledger_of()
    ledger.waits(delayed(order(3, key=None)))
    assert not ledger.is_behind(order(7, key=None))
    assert ledger.released(order(3, key=None)) is None


def test_the_next_input_of_a_key_is_released_when_the_earlier_one_is_finished() -> None:
    ledger = ledger_of()
    ledger.waits(delayed(order(3)))
    ledger.holds(order(5))
    ledger.holds(order(9))
    ledger.finishes(delayed(order(3)))
    assert ledger.released(order(3)) == order(5)
    ledger.waits(delayed(order(5), due_ms=300))  # it fails, too
    assert ledger.released(order(3)) is None
    ledger.finishes(order(5))
    assert ledger.released(order(5)) == order(9)


def test_a_record_is_current_until_its_input_waits_again_or_is_done() -> None:
    ledger = ledger_of()
    first, second = delayed(order(3)), delayed(order(3), attempts=2, due_ms=300)
    ledger.waits(first)
    assert ledger.is_current(first.moved("orders-retry"))
    ledger.waits(second)
    assert not ledger.is_current(first.moved("orders-retry"))
    assert ledger.is_current(second.moved("orders-retry"))
    assert [change.value for change in ledger.finishes(second)] == [None]
    assert not ledger.is_current(second)
    assert ledger.finishes(second) == []


def test_a_restored_ledger_is_as_before() -> None:
    ledger = ledger_of()
    changes = [ledger.waits(delayed(order(3), attempts=2, due_ms=300)), ledger.holds(order(4))]
    changes += [ledger.holds(order(6)), *ledger.finishes(order(4))]
    again = ledger_of(*changes)
    assert again.is_current(delayed(order(3), attempts=2, due_ms=300))
    assert again.is_behind(order(7))
    again.finishes(order(3))
    assert again.released(order(3)) == order(6)
