"""What the system refuses a gateway, said so that a client's user knows what to do."""

import errno

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def storage_trouble(error: OSError) -> str:
    advice = "; make room where the gateway stores, and it goes on by itself" if error.errno in _FULL else ""
    return f"storage: {error.strerror or 'trouble'}{advice}"
