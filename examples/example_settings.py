"""The settings of the examples: environment variables, checked before anything runs.

A value that an example cannot use ends it with one line that names the variable and what it takes.
"""

from tinygrad.helpers import getenv
from tinygrad.settings import SettingError


def number(name: str, default: float) -> float:
    """A number, which is whole if the default is."""
    try:
        return getenv(name, default)
    except SettingError as error:
        raise SystemExit(f"error: {error}; give one, such as {name}={default}") from error


def count(name: str, default: int, minimum: int = 1, maximum: int | None = None) -> int:
    """A whole number from `minimum` to `maximum`."""
    value = int(number(name, default))
    if value < minimum:
        raise SystemExit(f"error: {name}={value} is too small; give {minimum} or more")
    if maximum is not None and value > maximum:
        raise SystemExit(f"error: {name}={value} is too large; give {maximum} or less")
    return value


def multiple(name: str, default: int, of: str, factor: int) -> int:
    """A positive multiple of the setting `of`, which is `factor`."""
    value = count(name, default)
    if value % factor:
        nearest = -(-value // factor) * factor
        raise SystemExit(f"error: {name}={value} is no multiple of {of}={factor}; give {nearest}")
    return value


def choice(name: str, *values: str) -> str:
    """One of several texts, by default the first."""
    value = getenv(name, values[0])
    if value not in values:
        raise SystemExit(f"error: {name}={value} is unknown; give {' or '.join(values)}")
    return value
