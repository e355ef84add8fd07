"""Names of channels, and which topics a pattern stands for, as in AMQP."""

MAX_NAME_BYTES = 200  # AMQP takes 255, and an adapter puts a prefix before it


def check_name(name: str, max_bytes: int = MAX_NAME_BYTES) -> str:
    if not 0 < len(name.encode()) <= max_bytes:
        raise ValueError(f"want 1 to {max_bytes} bytes as a name on the bus, not {name[:50]!r}")
    return name


def is_match(pattern: str, topic: str) -> bool:
    """`*` stands for exactly one word, `#` for any number of them, none included."""
    words = topic.split(".")
    reached = {0}  # how many words the pattern may have used up so far
    for part in pattern.split("."):
        if part == "#":
            reached = set(range(min(reached), len(words) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(words) and part in ("*", words[at])}
        if not reached:
            return False
    return len(words) in reached
