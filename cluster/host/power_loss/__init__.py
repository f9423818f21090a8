"""Power loss: a journal of the writes that are not fsynced, and the roll-back of a dead process's files.

unsynced       the model: what a disk keeps and what it may lose
tracked_disk   a disk that writes the journal
roll_back      applies a power loss to the files of a process that has ended
"""
