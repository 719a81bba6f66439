"""The same methods across real machines: our round loop over Flower's Grid, our client halves in
Flower's ClientApp.

For a Flower app that exists: `GCFL` around its strategy, `gcfl_mod`, `coreset` and
`corrected_loss` in its client (docs/flower-existing-app.md).
"""

from gcfl.flower.app import export, site_in
from gcfl.flower.client import Site, client_app
from gcfl.flower.mod import coreset, corrected_loss, gcfl_mod
from gcfl.flower.server import serve, server_app
from gcfl.flower.transport import OverGrid
from gcfl.flower.wrapper import GCFL

__all__ = [
    "GCFL",
    "OverGrid",
    "Site",
    "client_app",
    "coreset",
    "corrected_loss",
    "export",
    "gcfl_mod",
    "serve",
    "server_app",
    "site_in",
]
