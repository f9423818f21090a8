"""`Harrow` (`harrow.py`), the object that a test receives, and its parts: topics' clients, pipelines, values."""
