"""The producer state of a log: idempotence, open transactions, and their snapshots on disk (F1, F5).

    producer_entry       one producer: the last five batches and the rules of the sequence check
    producer_states      every producer of one log
    producer_snapshots   the format of `.snapshot` files

The log calls this room at each append and at recovery. This room never calls the log.
"""
