"""Every rank fails in the same import: said once, not four times.

Verdict: launch-failed; ranks: 0-3; exit: 1; says: no_such_module
"""

import no_such_module  # noqa: F401
