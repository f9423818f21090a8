"""The zoo: bugs that Kafka really had, one module each: what happened in Kafka, the plant, and how the bug is found.

A module's head says what was wrong, what the plant replaces, and where the bug is described. `plant`
(`harrow.cluster.planting`) can be used by any command and test; the broker's own code is not changed. `BUG` (`bug.py`)
has the bug's number, what it needs, by which anomalies a verdict names it, and the application, settings and faults
that show it: `harrow zoo kip_101`. docs/zoo.md has the table.

The process of a planted broker imports the module too, so that nothing here imports the harness.
"""
