"""The administrator for callers without a loop; every method does what its namesake in `bolide.aio` does."""

from bolide.admin import admin
from bolide.admin.reach import SilentBroker
from bolide.client.blocking.loop import Blocking, forward, forward_pages
from bolide.client.config import Credentials
from bolide.clock import Clock
from bolide.remoting.config import ConnectConfig


class Admin(Blocking[admin.Admin]):
    """An administrator of one cluster. Open while its `with` block runs; threads may share it."""

    def __init__(
        self,
        namesrv: str | None = None,
        *,
        timeout_s: float = 5.0,
        partial: bool = False,
        credentials: Credentials | None = None,
        connect: ConnectConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Without `namesrv` the environment's NAMESRV_ADDR is used."""
        core = admin.Admin(
            namesrv, timeout_s=timeout_s, partial=partial, credentials=credentials, connect=connect, clock=clock
        )
        super().__init__(core)

    @property
    def silent(self) -> dict[str, SilentBroker]:
        """The brokers whose part was missing in what was answered so far, by name."""
        return self._core.silent

    # The cluster
    clusters = forward(admin.Admin.clusters)
    brokers = forward(admin.Admin.brokers)

    # Topics
    topics = forward(admin.Admin.topics)
    create_topic = forward(admin.Admin.create_topic)
    topic_shapes = forward(admin.Admin.topic_shapes)
    set_topic = forward(admin.Admin.set_topic)
    delete_topic = forward(admin.Admin.delete_topic)
    route = forward(admin.Admin.route)
    topic_queues = forward(admin.Admin.topic_queues)

    # Messages
    messages_by_key = forward(admin.Admin.messages_by_key)
    messages_by_id = forward(admin.Admin.messages_by_id)
    message_at = forward(admin.Admin.message_at)
    trace = forward(admin.Admin.trace)

    # Groups
    groups = forward(admin.Admin.groups)
    group_rows = forward(admin.Admin.group_rows)
    members = forward(admin.Admin.members)
    member_rows = forward(admin.Admin.member_rows)
    group_progress = forward(admin.Admin.group_progress)
    plan_reset = forward(admin.Admin.plan_reset)
    reset_group = forward(admin.Admin.reset_group)
    skip_backlog = forward(admin.Admin.skip_backlog)
    clone_group = forward(admin.Admin.clone_group)
    delete_group = forward(admin.Admin.delete_group)
    group_config = forward(admin.Admin.group_config)
    set_group = forward(admin.Admin.set_group)

    # Dead letters
    dead_letter_groups = forward(admin.Admin.dead_letter_groups)
    dead_letters = forward_pages(admin.Admin.dead_letters)
    resend_dead_letters = forward(admin.Admin.resend_dead_letters)

    # Transactions
    open_transactions = forward_pages(admin.Admin.open_transactions)
    given_up_transactions = forward_pages(admin.Admin.given_up_transactions)
    resume_transaction = forward(admin.Admin.resume_transaction)
