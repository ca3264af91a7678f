"""Run the migrations on the connection that the store hands in; there is no configuration file."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table="callgate_schema",
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
