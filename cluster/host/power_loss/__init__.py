"""Power loss: a journal of the writes that are not fsynced, and the roll-back of a dead process's files.

unsynced       the model: what a disk keeps and what it may lose
journal        the journal of one process's files, outside the process
tracked_disk   a disk that writes the journal
roll_back      applies a power loss to the files of a process that has ended
"""
