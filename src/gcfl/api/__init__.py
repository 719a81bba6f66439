"""gcfl from Python: what `import gcfl` offers."""

from gcfl.api.auditing import audit
from gcfl.api.running import Result, brought, execute, load, resume, run, verify, warn_unused

__all__ = [
    "Result",
    "audit",
    "brought",
    "execute",
    "load",
    "resume",
    "run",
    "verify",
    "warn_unused",
]
