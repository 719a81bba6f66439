"""gcfl from Python: what `import gcfl` offers."""

from gcfl.api.auditing import audit
from gcfl.api.predicting import Predictions, predict
from gcfl.api.recommendation import Recommendation
from gcfl.api.recommending import recommend, recommended
from gcfl.api.running import (
    DEFAULT_OUT,
    Result,
    brought,
    execute,
    load,
    resume,
    run,
    verify,
    warn_unused,
)

__all__ = [
    "DEFAULT_OUT",
    "Predictions",
    "Recommendation",
    "Result",
    "audit",
    "brought",
    "execute",
    "load",
    "predict",
    "recommend",
    "recommended",
    "resume",
    "run",
    "verify",
    "warn_unused",
]
