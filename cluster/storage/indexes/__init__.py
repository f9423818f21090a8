"""The index files of a segment: offset index, time index and transaction index (B3, B4, F5).

    sparse_index        what the offset index and the time index share: fixed-size entries in a mapped file
    offset_index        `.index`: offset to file position
    time_index          `.timeindex`: timestamp to offset
    transaction_index   `.txnindex`: the aborted transactions whose marker lies in the segment

An index uses its own file only. It never opens a segment or a log.
"""
