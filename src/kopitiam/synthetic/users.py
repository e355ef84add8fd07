"""The customers who register in a month."""

import numpy as np
import pyarrow as pa
from numpy.random import Generator

from kopitiam.synthetic.hours import month_start, opening_seconds
from kopitiam.synthetic.spelling import instants
from kopitiam.synthetic.volumes import Month

FIRST_BIRTHDATE = np.datetime64("1950-01-01", "D")
LAST_BIRTHDATE = np.datetime64("2012-12-31", "D")


def registrations(rng: Generator, month: Month) -> pa.Table:
    """Ids follow the order of registration; the rows of the file do not."""
    user_id = np.arange(month.users_before + 1, month.users_before + month.users + 1)
    registered = month_start(month) + np.sort(opening_seconds(rng, month, month.users))
    birthdate = rng.integers(FIRST_BIRTHDATE.astype(int), LAST_BIRTHDATE.astype(int) + 1, size=month.users)
    gender = pa.DictionaryArray.from_arrays(
        pa.array(rng.integers(0, 2, size=month.users, dtype=np.int8)), pa.array(["female", "male"])
    )
    order = rng.permutation(month.users)
    return pa.table(
        {
            "user_id": user_id[order],
            "gender": gender,
            "birthdate": pa.array(birthdate.astype(np.int32)).cast(pa.date32()),
            "registered_at": instants(registered[order]),
        }
    )
