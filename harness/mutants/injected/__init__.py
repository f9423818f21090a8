"""What `harrow mutants` puts on PYTHONPATH of a suite: its files are imported without this package."""
