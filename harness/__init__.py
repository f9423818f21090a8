"""What a test author sees: the pytest plugin, clients, histories, verdicts, reports, commands.

Owns nothing by itself. Importing it costs nothing: pytest imports it with every installed plugin.
"""

import sys

# Editable installs list no files, so pytest would not rewrite our assertions by itself; and a module
# that is already imported cannot be rewritten any more.
_REWRITTEN = (
    "harrow.harness.run.harrow",
    "harrow.harness.run.harrow_run",
    "harrow.harness.checks",
    "harrow.harness.clients",
)
if "pytest" in sys.modules:
    sys.modules["pytest"].register_assert_rewrite(*(name for name in _REWRITTEN if name not in sys.modules))
