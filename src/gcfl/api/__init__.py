"""gcfl from Python: what `import gcfl` offers."""

from gcfl.api.auditing import audit
from gcfl.api.recommendation import Recommendation
from gcfl.api.recommending import recommend, recommended
from gcfl.api.running import Result, brought, execute, load, resume, run, verify, warn_unused

__all__ = [
    "Recommendation",
    "Result",
    "audit",
    "brought",
    "execute",
    "load",
    "recommend",
    "recommended",
    "resume",
    "run",
    "verify",
    "warn_unused",
]
