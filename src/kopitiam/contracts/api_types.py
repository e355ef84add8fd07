"""Types that the JSON of several HTTP calls share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]  # no NUL: PostgreSQL keeps none
Count = Annotated[int, Field(ge=0, lt=2**53)]


class WireMessage(BaseModel):
    """A request or an answer. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
