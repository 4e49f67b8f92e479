"""ManualClock: a Clock that a test moves."""


class ManualClock:
    """It stands still until it is moved."""

    rounding_ms = 0

    def __init__(self, wall_ms: int = 1_700_000_000_000, monotonic_ms: int = 0) -> None:
        self.boot_id = bytes(15) + b"1"
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._suspended_ms = 0

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, after_ms: int) -> None:
        """Let time pass."""
        assert after_ms >= 0
        self._wall_ms += after_ms
        self._monotonic_ms += after_ms

    def boot_ms(self) -> int:
        return 5_000 + self._monotonic_ms + self._suspended_ms

    def suspend(self, span_ms: int) -> None:
        """Let time pass that the monotonic clock does not count."""
        self._suspended_ms += span_ms
        self._wall_ms += span_ms

    def step_wall(self, by_ms: int) -> None:
        """Set the wall clock forward, or back if negative; no time passes."""
        self._wall_ms += by_ms
