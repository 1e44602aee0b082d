"""A clock that a test holds."""


class HeldClock:
    """Stands until somebody moves it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s
