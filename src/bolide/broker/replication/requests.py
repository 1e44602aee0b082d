"""Requests about replication: where the log is to be had (906), how it goes (907), what a controller asks and tells.

A slave believes 906 of its master only: to have its log come from elsewhere is to have another log. 1007 and 1008 are
answered by the room of brokers whose master is elected, where that is switched on (`plug`).
"""

from collections.abc import Awaitable

from bolide.broker.pop.modes import RequestModes
from bolide.broker.replication.catalog import Catalog, CatalogVersion, version_of
from bolide.broker.replication.following import Following
from bolide.broker.state import BrokerState
from bolide.errors import Refusal
from bolide.ha.replication import Replication
from bolide.ha.status import SlaveStatus
from bolide.model.queue import PhysicalOffset
from bolide.protocol.bodies.brokers import ReplicaConnection, ReplicaState, ReplicationState
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.replication import (
    REPLICA_ID_FIELD,
    TABLES_VERSION_FIELD,
    ExchangeHaStateAnswer,
    ExchangeHaStateRequest,
)
from bolide.remoting.handlers import Handler
from bolide.remoting.owner import Reply, Request

_NOT_ELECTED = "the role of this broker is in its settings, not elected (enableControllerMode)"


class ReplicationRequests:
    """Answers other brokers, controllers and `mqadmin haStatus`."""

    def __init__(
        self,
        state: BrokerState,
        replication: Replication,
        following: Following,
        modes: RequestModes,
        catalog: Catalog,
    ) -> None:
        self._state = state
        self._replication = replication
        self._following = following
        self._modes = modes
        self._catalog = catalog
        self._plugged: dict[int, Handler] = {}

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.EXCHANGE_BROKER_HA_INFO: self.exchange,
            RequestCode.GET_BROKER_HA_STATUS: self.status,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.request_modes,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.elected,
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self.elected,
        }

    def plug(self, handlers: dict[int, Handler]) -> None:
        """Have requests of controllers answered by another."""
        self._plugged.update(handlers)

    def elected(self, request: Request) -> Reply | Awaitable[Reply]:
        """1007, 1008: for brokers whose master is elected."""
        handler = self._plugged.get(request.command.code)
        if handler is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"{RequestCode(request.command.code).name}: {_NOT_ELECTED}")
        return handler(request)

    def exchange(self, request: Request) -> Command | Awaitable[Command]:
        """906: a slave asks where to copy from, or a master tells it. One of ours asks for newer topics and groups."""
        told = ExchangeHaStateRequest.decode(request.command.fields)
        version = request.command.fields.get(TABLES_VERSION_FIELD)
        if version is not None and self._state.role.is_leading:
            return self._newer(request, version)
        return self._exchanged(request, told)

    async def _newer(self, request: Request, version: str) -> Command:
        try:
            replica_id = int(request.command.fields[REPLICA_ID_FIELD])
            known = CatalogVersion.decode(version)
        except (KeyError, ValueError) as problem:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no version of topics and groups: {problem}") from None
        await self._catalog.told(replica_id, known)
        return self._exchanged(request, ExchangeHaStateRequest())

    def _exchanged(self, request: Request, told: ExchangeHaStateRequest) -> Command:
        if told.master_ha_address and not self._state.role.is_leading:
            self._following.told_by_master(told.master_address, told.master_ha_address)
        if not self._state.role.is_leading:
            return request.command.answer(ResponseCode.SUCCESS)
        address = self._following.own_address
        answer = ExchangeHaStateAnswer(
            master_ha_address=self._following.own_ha_address,
            master_flush_offset=PhysicalOffset(self._state.store.durable_end),
            master_address=address,
        )
        fields = {**answer.encode(), TABLES_VERSION_FIELD: version_of(self._state).encode()}
        return request.command.answer(ResponseCode.SUCCESS, fields=fields)

    def request_modes(self, request: Request) -> Command:
        """402: for a slave."""
        return request.command.answer(ResponseCode.SUCCESS, body=self._modes.snapshot().encode())

    def status(self, request: Request) -> Command:
        """907: both sides; a slave has slaves of its own at times."""
        state, gap = self._state, self._state.settings.now.ha.gap_size_max
        slaves = [slave for slave in self._replication.slaves if slave.is_in_transfer]
        body = ReplicationState(
            bolide_is_acting=state.role.now.is_acting or None,
            is_master=state.role.is_leading,
            master_commit_log_max_offset=state.store.log_end if state.role.is_leading else 0,
            in_sync_slave_nums=sum(slave.lag_size < gap for slave in slaves),
            ha_connection_info=[_connection(slave, gap) for slave in slaves],
            ha_client_runtime_info=ReplicaState() if state.role.is_leading else self._client(),
        )
        return request.command.answer(ResponseCode.SUCCESS, body=body.encode())

    def _client(self) -> ReplicaState:
        following, clock = self._replication.following, self._state.clock
        now_ms, now_s = clock.now_ms(), clock.monotonic_s()

        def wall_ms(moment_s: float) -> int:
            return now_ms - round((now_s - moment_s) * 1000) if moment_s > 0 else 0

        return ReplicaState(
            master_addr=following.address or None,
            master_flush_offset=following.master_end,
            max_offset=following.end,
            last_read_timestamp=wall_ms(following.last_read_s),
            last_write_timestamp=wall_ms(following.last_written_s),
            transferred_byte_in_second=following.bytes_per_s,
        )


def _connection(slave: SlaveStatus, gap_size_max: int) -> ReplicaConnection:
    return ReplicaConnection(
        addr=slave.address,
        diff=slave.lag_size,
        in_sync=slave.lag_size < gap_size_max,
        slave_ack_offset=slave.acked_end,
        transfer_from_where=slave.sent_end,
        transferred_byte_in_second=slave.bytes_per_s,
        bolide_slave_id=slave.slave_id,
        bolide_lag_ms=slave.lag_ms,
    )
