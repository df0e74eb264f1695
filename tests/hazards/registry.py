"""The hazards of a faster job, planted one at a time: `X11-bug` is wrong, `X11-twin` only looks like it.

A plant is called at three points: before and after the model is made, and after the optimizer is. `X11-base`
is a plant that belongs to both arms.
"""

from __future__ import annotations

PLANTS: dict[str, object] = {}


def plant(name: str, when: str = "before model"):
    """Register a plant that acts at one point."""

    def register(function):
        def act(parts, now):
            if now == when:
                function(parts)

        PLANTS[name] = act
        return function

    return register
