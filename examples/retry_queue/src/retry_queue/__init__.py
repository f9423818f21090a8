"""A retry queue: what fails is tried again later, and after some attempts lies among the dead letters."""
