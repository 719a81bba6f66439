"""Dates as people write them: ISO's, months by name, or by a format that somebody gives."""

from __future__ import annotations

import re
from datetime import datetime

_ISO = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)(?:[ T](.+))?")
_MONTH = r"([A-Za-z]{3,9})\.?"
# 29 Feb 2024, 29-Feb-2024, 29. February 2024 12:00; Feb 29, 2024
_DAY_FIRST = re.compile(rf"(\d{{1,2}})\.?[ -]{_MONTH},?[ -](\d{{4}})(?:,? (.+))?")
_MONTH_FIRST = re.compile(rf"{_MONTH} (\d{{1,2}}),? (\d{{4}})(?:,? (.+))?")
_WEEKDAY = re.compile(r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?,? ", re.I)
_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
_NUMBERS = {name[:letters]: n for n, name in enumerate(_MONTHS, 1) for letters in (3, len(name))}
_NUMBERS["sept"] = 9
_ZONE = re.compile(r"\s*(?:UTC|GMT|Z)$|\s+(?=[+-]\d\d:?\d\d$)")
# which of two numbers is the day, nobody can tell
_EITHER = re.compile(r"\d{1,2}([/.-])\d{1,2}\1(\d{4}|\d\d)( .+)?")
_LONGEST = 64
_PROBE = datetime(2023, 11, 29)


def moment(text: str, format: str | None = None) -> datetime:
    """The moment that a text names: by the format alone, where there is one, else where it cannot
    be read in two ways. ValueError where it is none.
    """
    if format is not None:
        return datetime.strptime(text, format)
    if found := _ISO.fullmatch(text):
        year, month, day, time = found.groups()
        return _at(year, int(month), day, time)
    rest = text if (weekday := _WEEKDAY.match(text)) is None else text[weekday.end() :]
    if found := _DAY_FIRST.fullmatch(rest):
        day, name, year, time = found.groups()
    elif found := _MONTH_FIRST.fullmatch(rest):
        name, day, year, time = found.groups()
    else:
        raise ValueError
    return _at(year, _NUMBERS.get(name.lower(), 0), day, time)


def _at(year: str, month: int, day: str, time: str | None) -> datetime:
    date = f"{year}-{month:02d}-{int(day):02d}"
    if time is None:
        return datetime.fromisoformat(date)
    zoned = _ZONE.sub(lambda zone: "+00:00" if zone[0].strip() else "", time)
    return datetime.fromisoformat(f"{date}T{zoned}")


def day_or_month(text: str) -> bool:
    """Whether it looks like a date of which nobody can say what is the day: 1/2/2024."""
    return _EITHER.fullmatch(text) is not None


def names_a_date(format: str) -> bool:
    """Whether this format of strptime names day, month and year."""
    if len(format) > _LONGEST:
        return False
    try:
        return datetime.strptime(_PROBE.strftime(format), format).date() == _PROBE.date()
    except (ValueError, re.error):
        return False


def checked_format(format: str) -> str:
    """A validator of data.date_format."""
    if not names_a_date(format):
        raise ValueError('must name day, month and year, as in "%d/%m/%Y"')
    if _PROBE.strftime(format).replace(".", "", 1).isdigit():
        raise ValueError(
            "must have more than digits, or every number would be a date; a schema file "
            "(data.schema_file) can say of one column that it holds such dates"
        )
    return format
