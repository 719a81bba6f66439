"""The same methods across real machines: our round loop over Flower's Grid, our client halves in Flower's ClientApp."""

from gcfl.flower.app import site_in
from gcfl.flower.client import Site, client_app
from gcfl.flower.export import export
from gcfl.flower.server import serve, server_app
from gcfl.flower.transport import OverGrid

__all__ = ["OverGrid", "Site", "client_app", "export", "serve", "server_app", "site_in"]
