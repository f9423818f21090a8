"""The machine a broker believes it runs on: the seam (`seam.py`) and the real side of it.

`real.py` assembles `RealHost` from one file a part. Nothing is re-exported: broker code imports the
protocols from `seam`, processes import `RealHost`, the supervisor imports `ControlClient`.
"""
