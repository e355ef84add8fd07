"""The settings of the registry, the bus, the storage, Spark and pipelines, and the base of all sections."""

from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from kopitiam.contracts.addresses import check_host
from kopitiam.contracts.batches import MOST_SHARDS


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RegistrySection(Section):
    url: str = "sqlite"


class BusSection(Section):
    url: str = "memory"


class StorageSection(Section):
    """Storage of landing, partials, results and rejected rows. Without keys, S3 uses those of the
    environment, the AWS files or the machine's role."""

    url: str = "file"  # below home; or file:///mounted/folder, s3://bucket/prefix, hdfs://host:port/folder
    endpoint: str = ""  # of an S3-compatible store: http(s)://host:port
    region: str = ""
    access_key: SecretStr = SecretStr("")
    secret_key: SecretStr = SecretStr("")

    @field_validator("url")
    @classmethod
    def _is_a_place(cls, url: str) -> str:
        if url == "file":
            return url
        try:
            place = urlsplit(url)
        except ValueError:
            place = urlsplit("")
        if not place.scheme or "://" not in url or place.query or place.fragment:
            raise ValueError("expected file, or an address such as s3://bucket/prefix, without ? and #")
        if place.scheme == "file" and (place.netloc or not place.path.strip("/")):
            raise ValueError("expected file:///folder, with three slashes")
        if place.scheme == "s3" and (not place.netloc or "@" in place.netloc):
            raise ValueError("expected s3://bucket/prefix; keys go to access_key and secret_key")
        return url.rstrip("/")

    @field_validator("endpoint")
    @classmethod
    def _is_an_endpoint(cls, endpoint: str) -> str:
        place = urlsplit(endpoint)
        if endpoint and (place.scheme not in {"http", "https"} or not place.netloc or place.path.strip("/")):
            raise ValueError("expected http://host:port or https://host:port")
        return endpoint.rstrip("/")

    @model_validator(mode="after")
    def _keys_come_in_pairs(self) -> "StorageSection":
        if bool(self.access_key.get_secret_value()) != bool(self.secret_key.get_secret_value()):
            raise ValueError("access_key and secret_key: set both or neither")
        if self.access_key.get_secret_value() and not self.url.startswith("s3://"):
            raise ValueError("access_key and secret_key: only s3:// uses them")
        return self

    def beside(self, name: str) -> "StorageSection":
        """A separate folder below this one. A home is not shared, and is returned unchanged."""
        return self if self.url == "file" else self.model_copy(update={"url": f"{self.url}/{name}"})


class PipelineSection(Section):
    shards: int = Field(1, ge=1, le=MOST_SHARDS)  # of new runs
    max_chunks_per_batch: int = Field(128, ge=1)
    max_bytes_per_batch: int = Field(1 << 30, ge=1)
    warm_up: bool = True  # a made-up run when Spark has started, unless a client comes first


class SparkSection(Section):
    master: str = "local[*]"
    driver_host: str = ""  # under which executors reach the driver; not given: node.host
    conf: dict[str, str] = {}
    patience_seconds: float | None = Field(None, gt=0)  # to wait for the first executor of a cluster
    worker_cores: int = Field(2, ge=1)  # of each spark-worker-N among nodes.services
    worker_memory: str = Field("2g", pattern=r"^[1-9][0-9]*[mg]$")

    @field_validator("driver_host")
    @classmethod
    def _is_a_host(cls, host: str) -> str:
        return host and check_host(host)

    @property
    def worker_megabytes(self) -> int:
        return int(self.worker_memory[:-1]) * (1024 if self.worker_memory.endswith("g") else 1)
