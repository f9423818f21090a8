"""Compaction (B8): the cleaner threads, one pass over one log, and the swap of the new segments.

log_cleaner            the cleaner threads of a broker
log_cleaner_manager    which log is cleaned next; pause, resume and abort of a cleaning
cleaner                one compaction of one log: builds the offset map, writes the cleaned segments
offset_map             key to last offset, in bounded memory
record_filter          which records of a batch stay
cleaned_transactions   which transaction markers and aborted batches stay
cleaned_segment        the `.cleaned` files
segment_swap           `.cleaned`, `.swap`, `.log`: the order of renames that survives a crash
"""
