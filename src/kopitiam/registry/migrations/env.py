"""Alembic runs this module inside the transaction that `upgrade` has begun: all or nothing."""

from alembic import context

from kopitiam.registry.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
