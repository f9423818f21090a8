"""The project's own suite uses the plugin as any user would: by its entry point, with no private fixtures."""

pytest_plugins = ["pytester"]
