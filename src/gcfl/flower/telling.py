"""What a site tells of an error: a short fixed sentence for each kind.

The text of an exception may hold a path, a name or a value of a sample. It stays in the site's own
log, unless its operator lets it out: `errors="details"` in the node config.
"""

from __future__ import annotations

import logging

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp

from gcfl.base.errors import ConfigError, DataError, GcflError, ModelError, one_line

log = logging.getLogger("gcfl")
_SETTING, _DETAILS = "errors", "details"
_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (ConfigError, "its node config or another setting does not fit"),
    (DataError, "its data cannot be used as it is"),
    (ModelError, "the model does not fit its data"),
    (GcflError, "what it was sent, or what it remembers, cannot be used"),
    (MemoryError, "it has not enough memory"),
    (OSError, "a file or a device failed"),
)
_OTHER = "something failed in its program"


def told(error: Exception, context: Context) -> str:
    """What the server hears of an error at this site."""
    if str(context.node_config.get(_SETTING, "")) == _DETAILS:
        return one_line(error)
    sentence = next((text for kind, text in _KINDS if isinstance(error, kind)), _OTHER)
    return f"{sentence}; its own log says more"


class SiteApp(ClientApp):
    """A ClientApp whose errors stay at the site: Flower would send the text of an exception."""

    def __call__(self, message: Message, context: Context) -> Message:
        try:
            return super().__call__(message, context)
        except Exception as error:
            log.exception("no answer to a message of the server")
            return Message(Error(0, told(error, context)), reply_to=message)
