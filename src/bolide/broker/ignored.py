"""RocketMQ's broker keys that steer nothing here, with its defaults (5.5.0)."""

WITHOUT_EFFECT: dict[str, str] = {}
