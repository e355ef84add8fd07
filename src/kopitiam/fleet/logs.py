"""What a node says goes to one file, with one older generation; its last words explain why it ended."""

from pathlib import Path

MOST_BYTES = 16 << 20
_LAST_BYTES = 8192
_LAST_LINES = 5


def rotate(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > MOST_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))


def last_words(log: Path, since: int = 0) -> str:
    """The last lines after the first `since` bytes, to be put behind what they explain."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(since, end - _LAST_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        text = ""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()][-_LAST_LINES:]
    if len(lines) > 1:
        return "".join(f"\n  {line}" for line in lines)
    return f" {lines[0].strip()}" if lines else " it said nothing"
