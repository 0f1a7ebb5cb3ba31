"""Django's Postgres backend that starts the embedded server before the first connection."""

from collections.abc import Iterable
from typing import Any, ClassVar

from django.db.backends.postgresql import base as postgresql
from django.db.backends.postgresql import client
from django.utils.asyncio import async_unsafe

from config.embedded.server import EmbeddedServer, programs, server_at


class DatabaseClient(client.DatabaseClient):
    """`manage.py dbshell` with the psql of the embedded server."""

    @classmethod
    def settings_to_cmd_args_env(
        cls, settings_dict: dict[str, Any], parameters: Iterable[str]
    ) -> tuple[list[str], dict[str, str] | None]:
        embedded = settings_dict["EMBEDDED"]
        address = server_at(embedded["data"], durable=embedded["durable"]).ensure()
        place = {"HOST": str(address.socket_dir), "PORT": address.port, "USER": address.user}
        arguments, environment = super().settings_to_cmd_args_env({**settings_dict, **place}, parameters)
        return [str(programs() / "psql"), *list(arguments)[1:]], environment


class DatabaseWrapper(postgresql.DatabaseWrapper):
    client_class = DatabaseClient
    _connection_pools: ClassVar[dict[str, Any]]  # Django's own, which its stubs leave out

    @property
    def server(self) -> EmbeddedServer:
        embedded = self.settings_dict["EMBEDDED"]
        return server_at(embedded["data"], durable=embedded["durable"])

    def get_connection_params(self) -> dict[str, Any]:
        # Django requests these right before connecting, so the server is started here.
        address = self.server.ensure()
        return {
            **super().get_connection_params(),
            "host": str(address.socket_dir),
            "port": address.port,
            "user": address.user,
        }

    def close_pool(self) -> None:
        # Access creates the pool, which would start the server only to close it.
        if self.alias in self._connection_pools:
            super().close_pool()

    @async_unsafe
    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        connection = super().get_new_connection(conn_params)
        self.server.before_stop(self._close_every_pool)
        return connection

    @classmethod
    def _close_every_pool(cls) -> None:
        for pool in list(cls._connection_pools.values()):
            pool.close()
        cls._connection_pools.clear()
