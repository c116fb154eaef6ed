"""From `module:app` on the command line to the App."""

from __future__ import annotations

import importlib
import sys

import click

from accoda.app import App


def load_app(target: str) -> App:
    """Import the module and give its App; without a name, the only one that is in it."""
    module_name, _, name = target.partition(":")
    if not module_name or module_name.endswith(".py") or "/" in module_name:
        raise click.BadParameter(f"write module:app, such as shop.jobs:app, not {target!r}", param_hint="MODULE:APP")
    # As with `python -m`, what lies in this folder can be imported.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise click.ClickException(
                f"there is no module {error.name} here; run accoda in the folder where `import {module_name}` works"
            ) from error
        raise click.ClickException(f"cannot import {module_name}: it needs {error.name}, which is missing") from error
    except Exception as error:
        raise click.ClickException(f"cannot import {module_name}: {type(error).__name__}: {error}") from error
    apps = {key: value for key, value in vars(module).items() if isinstance(value, App)}
    if name in apps:
        return apps[name]
    if not name and len(apps) == 1:
        return next(iter(apps.values()))
    known = ", ".join(f"{module_name}:{key}" for key in apps) or "none; make one with app = App()"
    what = f"{name} is no App" if name and hasattr(module, name) else f"there is no {name or 'single App'}"
    raise click.ClickException(f"{target}: {what} in {module_name}. Apps in it: {known}")
