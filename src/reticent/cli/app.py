"""The `reticent` program: all commands in one application."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from cyclopts import App

from reticent.cli import data, keys
from reticent.cli.ask import ask
from reticent.cli.audit import mechanisms
from reticent.cli.backup import backup
from reticent.cli.demo import demo
from reticent.cli.dispatch import run
from reticent.cli.experiment import experiment
from reticent.cli.export import export
from reticent.cli.feedback import feedback
from reticent.cli.fit import fit
from reticent.cli.plan import plan
from reticent.cli.restore import restore
from reticent.cli.schema import schema
from reticent.cli.serve import serve
from reticent.cli.status import status
from reticent.cli.teach import teach

app = App(
    name="reticent",
    help="Private learning and private prediction: answers every question, never tells who taught it.",
    version=lambda: version("reticent"),
)
for command in (schema, fit, serve, ask, teach, feedback, status, export, backup, restore, experiment, demo):
    app.command(command)
app.command(plan, help_flags=[], version_flags=[])  # it has a help of its own for each function that plans

audit_app = App(name="audit", help="Attack the privacy claims of this package, to test them.")
audit_app.command(mechanisms)
app.command(audit_app)

data_app = App(name="data", help="What may be spent on the people in a table, and what was: one budget per table.")
data_app.command(data.add)
data_app.command(data.list_all, name="list")
data_app.command(data.show)
data_app.command(data.raise_cap, name="raise")
app.command(data_app)

keys_app = App(name="keys", help="Who may ask, teach, observe or administer a service.")
keys_app.command(keys.add)
keys_app.command(keys.list_all, name="list")
keys_app.command(keys.set_limits, name="set")
keys_app.command(keys.rotate)
keys_app.command(keys.revoke)
app.command(keys_app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : sequence of str, default None
        The words of the command line after `reticent`; None takes them from `sys.argv`.

    Returns
    -------
    int
        The exit code: 0, 1 for a failed audit, 130 after Ctrl-C, or that of a refusal.
    """
    return run(app, arguments)
