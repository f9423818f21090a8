"""The machine that a broker runs on: the seam, and its implementations.

    seam/        the protocols that broker code imports
    real/        the operating system
    simulated/   a virtual machine on a virtual clock, for simulations
    knobs/       what a fault can change on both
    power_loss/  the journal of unsynced writes
    tap.py       what the wire acknowledged and delivered, and what coordinators decided; trace.py: structured events

This file re-exports nothing: importing the seam must not import the real machine.
"""
