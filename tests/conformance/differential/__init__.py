"""The differential: both systems get the same requests, and their responses are compared field by field.

    make differential                                   20,000 cases of a new seed
    make differential ARGS="--seed 7 --cases 2000"
    make differential ARGS="--api OffsetCommit"         cases of one request
    make differential ARGS="--replay FILE…"             findings of an earlier run, from harrow-out/differential/
    make differential ARGS="--lanes 1"                  one case after the other

A **case** is a short list of requests: set-up steps, the target, probes that read the state behind it (`cases.py`).
Three kinds of cases are made from the seed:

* a sensible request in each version that both systems advertise (`requests.py`, `group_requests.py`,
  `topic_requests.py`), in a small prepared world (`world.py`), with one field changed to an edge value, or two
  (`mutations.py`);
* record batches that lie in every field of the header and of each record, under a correct CRC (`batches.py`);
* programs of 5 to 30 requests by several clients (`programs.py`).

Requests are encoded and responses decoded from Kafka's own message files (`message_files.py`, `codec.py`): no code of
`harrow.cluster.wire` has a part in it, so a fault of our codecs cannot hide. `systems.py` starts both clusters once,
with equal settings; `session.py` runs a case on one of them over `link.py`; `duel.py` runs it on both at once, in a
world of `worlds.py`. Eight lanes do so at the same time, because a case mostly waits (`lanes.py`).

`normal.py` replaces what differs between any two clusters (ids, times, ports) and leaves out texts. What then differs
is a **finding** unless a row of `docs/compatibility.toml` explains it (`known.py`); the page `docs/compatibility.md`
has its table from the same rows. A finding is repeated in a new world, made as small as it can be (`shrink.py`),
printed, and written as a file for `--replay` (`runner.py`). It is repeated four times while all other lanes wait, and
counts when it is there each time. The exit status is 1 when there is a finding, 2 without Apache Kafka.

Invariants: case n of a seed is the same in every run; names are new in every world and case, so no case sees another
one's groups and transactions, except in the group "", whose cases follow each other; after a difference, and after a
case that changes the topics of its world, the lane gets a new world, because the systems' states may differ; a case
that changes what all cases see runs alone.

Where the time goes (two processors, one of them busy with other work, 8 lanes): a case takes some 12 ms of processor
time of Apache Kafka's three nodes, 12 ms of ours and 10 ms of this program, a case with a new topic six times as much,
a program ten times; the nodes of Kafka take a tenth of a processor when nothing is asked.

To explain a difference that stays, add a row to `docs/compatibility.toml` and write the page again:
`PYTHONPATH=tests/conformance:tests/support .venv/bin/python -m differential.known`.
"""
