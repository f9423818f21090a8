"""Map three top-level folders into one import package, `harrow` (see ARCHITECTURE.md).

Everything else about the distribution is declared in pyproject.toml. The packages are found, not
listed: a static list silently loses new sub-packages from the wheel.
"""

from setuptools import find_packages, setup

LAYERS = ("cluster", "faults", "harness")

packages = ["harrow"]
package_dir = {"harrow": "package"}
for layer in LAYERS:
    package_dir[f"harrow.{layer}"] = layer
    packages.append(f"harrow.{layer}")
    packages += [f"harrow.{layer}.{name}" for name in find_packages(layer)]

setup(
    packages=packages,
    package_dir=package_dir,
    package_data={"harrow": ["py.typed"], "harrow.harness.reports": ["*.html", "*.css", "*.js"]},
)
