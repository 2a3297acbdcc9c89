"""What a command left out, since it could not be read: whoever prints asks for the lines at the end."""

_left_out: dict[str, None] = {}


def leave_out(what: object) -> None:
    """Note, once, what could not be read, with the reason."""
    _left_out[f"left out: {what}"] = None


def left_out() -> list[str]:
    """The lines since the last call."""
    lines = [*_left_out]
    _left_out.clear()
    return lines
