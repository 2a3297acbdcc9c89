"""What `hydra.launcher.workers`, `.threads` and `.timeout` accept."""

from typing import Any

from ablate.config.rules import ConfigError


def settings(workers: Any, threads: Any, timeout: Any) -> tuple[int | None, int | None, float | None]:
    """The three as numbers, None where nothing was said. Raises ConfigError."""
    return _count("workers", workers), _count("threads", threads), _seconds(timeout)


def _count(key: str, value: Any) -> int | None:
    if value == "auto":
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1024:
        return value
    raise ConfigError(f"hydra.launcher.{key}={value}: use auto or a whole number from 1 to 1024")


def _seconds(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf"):
        return float(value)
    raise ConfigError(
        f"hydra.launcher.timeout={value}: use a number of seconds above 0, or null for no limit"
    )
