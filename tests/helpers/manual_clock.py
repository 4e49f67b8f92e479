"""ManualClock: a Clock that a test moves."""


class ManualClock:
    """It stands still until it is moved."""

    rounding_ms = 0

    def __init__(self, wall_ms: int = 1_700_000_000_000, monotonic_ms: int = 0) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, after_ms: int) -> None:
        """Let time pass."""
        assert after_ms >= 0
        self._wall_ms += after_ms
        self._monotonic_ms += after_ms

    def step_wall(self, by_ms: int) -> None:
        """Set the wall clock forward, or back if negative; no time passes."""
        self._wall_ms += by_ms
