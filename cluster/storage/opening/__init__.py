"""Opening a log folder (B9, B10): leftovers of a crash, segments, indexes, recovery.

log_opener  all logs of a data folder, and logs of new replicas
loader      the order of the steps; its result is a `Log`
sweeping    removes or completes `.deleted`, `.cleaned` and `.swap` files
recovery    reads a segment again after an unclean stop
segment_end the next offset and the largest timestamp of a segment
gaps        offsets that are missing between two segments
splitting   a segment whose offsets do not fit its indexes becomes several
"""
