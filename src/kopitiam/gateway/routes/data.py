"""Calls about data sets: list, show with versions and files, drop."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Query

from kopitiam.contracts.api_types import Text
from kopitiam.contracts.data_api import (
    DataChanges,
    DataFileView,
    DataSetDetail,
    DataSetList,
    DataSetName,
    DataSetView,
    DataVersionView,
    DroppedDataSet,
    Version,
)
from kopitiam.contracts.data_sets import DataFile, DataSet, DataVersion
from kopitiam.contracts.errors import DataSetNotFound
from kopitiam.gateway.access import Caller
from kopitiam.gateway.context import CallerDep, GatewayDep
from kopitiam.gateway.removal import drop

router = APIRouter(prefix="/api/v1/data", tags=["data sets"])
Name = Annotated[DataSetName, Path(description="Name of the data set.")]
Owner = Annotated[Text, Query(description="For the admin token: whose data set; default: the caller's.")]


@router.get("")
def list_data_sets(gateway: GatewayDep, caller: CallerDep) -> DataSetList:
    """The data sets of the caller, by name; for the admin token, those of all."""
    registry = gateway.registry
    views = []
    for data_set in registry.data_sets(caller.visible_owner):
        files = registry.version_files(data_set.id, data_set.newest)
        views.append(
            DataSetView(
                name=data_set.name,
                owner=data_set.owner,
                created_at=data_set.created_at,
                version=data_set.newest,
                versions=len(data_set.versions),
                files=len(files),
                rows=sum(file.rows for file in files),
            )
        )
    return DataSetList(data_sets=views)


@router.get("/{name}")
def get_data_set(
    name: Name,
    gateway: GatewayDep,
    caller: CallerDep,
    *,
    version: Annotated[Version | None, Query(description="whose files to list; default: the newest")] = None,
    owner: Owner = "",
) -> DataSetDetail:
    """A data set with its versions, what each of them changed, and the files of one version."""
    data_set = gateway.registry.data_set(owner_to_read(caller, owner), name)
    number = data_set.newest if version is None else version
    if number and number not in {kept.number for kept in data_set.versions}:
        message = f"data set {name}: version {number} does not exist, or is not kept any more"
        raise DataSetNotFound(message)
    return _detail(data_set, number, gateway.registry.version_files(data_set.id, number))


@router.delete("/{name}")
def drop_data_set(name: Name, gateway: GatewayDep, caller: CallerDep, *, owner: Owner = "") -> DroppedDataSet:
    """Delete a data set with all its versions and files, its runs and their answers. Runs that are not over
    are ended; the last files go within seconds."""
    return DroppedDataSet(name=name, runs=drop(gateway, owner_to_read(caller, owner), name))


def owner_to_read(caller: Caller, owner: str) -> str:
    """Raises DataSetNotFound if the caller may not see data sets of this owner."""
    if owner and not caller.may_see(owner):
        raise DataSetNotFound("no such data set")
    return owner or caller.owner


def _detail(data_set: DataSet, version: int, files: list[DataFile]) -> DataSetDetail:
    return DataSetDetail(
        name=data_set.name,
        owner=data_set.owner,
        created_at=data_set.created_at,
        version=version,
        versions=[_version(each) for each in data_set.versions],
        files=[
            DataFileView(
                table=file.table,
                name=file.name,
                digest=file.digest,
                bytes=file.bytes,
                columns=list(file.columns),
                chunks=file.chunks,
                rows=file.rows,
                rejected=file.rejected,
            )
            for file in files
        ],
    )


def _version(version: DataVersion) -> DataVersionView:
    return DataVersionView(
        version=version.number,
        run=version.run,
        created_at=version.created_at,
        changes=DataChanges(**asdict(version.changes)),
        added=list(version.added),
        replaced=list(version.replaced),
    )
