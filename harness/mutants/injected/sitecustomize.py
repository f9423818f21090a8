"""Python imports this at its start: it puts the mutant of `HARROW_MUTANT` into Kafka clients that are imported later.

`harrow mutants` puts the folder of this file in front of PYTHONPATH. A `sitecustomize` of the environment, which this
one hides, is run behind it. The file has the standard library alone: a service need not have Harrow installed.
"""

import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

HERE = os.path.dirname(os.path.abspath(__file__))

if os.environ.get("HARROW_MUTANT"):
    import_module("harrow_client_bugs").install(os.environ["HARROW_MUTANT"])

_others = [path for path in sys.path if os.path.abspath(path or ".") != HERE]
_spec = PathFinder.find_spec("sitecustomize", _others)
if _spec is not None and _spec.loader is not None:
    _spec.loader.exec_module(module_from_spec(_spec))
