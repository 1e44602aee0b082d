"""How long a failed message waits when its group has a retry policy of its own.

RocketMQ keeps a policy with each group (groupRetryPolicy, 5.x) and follows it in its gRPC proxy alone; its broker goes
by the delay levels whatever is set. Here the broker follows it too, for every consumer that leaves the delay to the
broker: a group whose policy was never touched is retried by the levels, as ever.

    CUSTOMIZED    a delay for each retry, the last one for all that follow: 1 s, 1 s, 1 m → 1 s, 1 s, 1 m, 1 m, …
    EXPONENTIAL   initial × multiplier ^ retries so far, at most max: 5 s, 10 s, 20 s, … 2 h
"""

from collections.abc import Sequence

from bolide.protocol.bodies.groups import GrowingDelays, RetryKind, RetryPolicy

DELAY_COUNT_MAX = 64
DELAY_MS_MAX = 3 * 24 * 3_600_000  # timed messages wait no longer (timerMaxDelaySec)
_GROWTH_MAX = 32  # Java's: what grew 32 times has reached every limit


def own_delay_ms(policy: RetryPolicy, reconsume_times: int) -> int | None:
    """The wait before the next attempt of a message that failed so often before; None where the levels decide."""
    times = max(0, reconsume_times)
    if policy.type is RetryKind.EXPONENTIAL:
        growing = policy.exponential_retry_policy or GrowingDelays()
        factor: int = growing.multiplier ** min(times, _GROWTH_MAX)
        return min(growing.initial * factor, growing.max)
    listed = policy.customized_retry_policy
    if listed is None or not listed.next:
        return None
    return listed.next[min(times, len(listed.next) - 1)]


def level_not_below(delay_ms: int, delays_ms: Sequence[int]) -> int:
    """The first delay level that is not shorter, else the last."""
    for level, level_ms in enumerate(delays_ms, 1):
        if delay_ms <= level_ms:
            return level
    return len(delays_ms)


def policy_problem(policy: RetryPolicy) -> str | None:
    """Why a group cannot be retried like this; None if it can."""
    growing, listed = policy.exponential_retry_policy, policy.customized_retry_policy
    if growing is not None:
        if not 0 < growing.initial <= growing.max <= DELAY_MS_MAX:
            return (
                f"exponentialRetryPolicy: delays of {growing.initial} to {growing.max} ms; "
                f"initial must be more than 0, max not less than it and at most {DELAY_MS_MAX}"
            )
        if not 1 <= growing.multiplier <= DELAY_MS_MAX:
            return f"exponentialRetryPolicy: multiplier = {growing.multiplier}; it must be 1 or more"
    if listed is not None:
        if not 1 <= len(listed.next) <= DELAY_COUNT_MAX:
            return f"customizedRetryPolicy: {len(listed.next)} delays; give 1 to {DELAY_COUNT_MAX}"
        for delay_ms in listed.next:
            if not 0 <= delay_ms <= DELAY_MS_MAX:
                return f"customizedRetryPolicy: a delay of {delay_ms} ms; it must be 0 to {DELAY_MS_MAX}"
    return None
