"""The same methods across real machines: our round loop over Flower's Grid, our client halves in Flower's ClientApp."""

from gcfl.flower.client import Site, client_app
from gcfl.flower.export import export, read_experiment, site_of
from gcfl.flower.server import serve, server_app
from gcfl.flower.transport import OverGrid

__all__ = ["OverGrid", "Site", "client_app", "export", "read_experiment", "serve", "server_app", "site_of"]
