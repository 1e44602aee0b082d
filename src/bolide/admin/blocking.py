"""The administrator for callers without a loop; every method does what its namesake in `bolide.aio` does."""

from bolide.admin import admin
from bolide.admin.reach import SilentBroker
from bolide.client.blocking.loop import Blocking, forward, forward_pages, forward_plain
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
    broker_statuses = forward(admin.Admin.broker_statuses)
    check_access = forward(admin.Admin.check_access)
    is_access_checked = forward(admin.Admin.is_access_checked)

    # Controllers of groups of brokers
    controller_metadata = forward(admin.Admin.controller_metadata)
    sync_state = forward(admin.Admin.sync_state)
    elect_master = forward(admin.Admin.elect_master)
    controllers_of = forward(admin.Admin.controllers_of)
    promote = forward(admin.Admin.promote)
    replicas = forward(admin.Admin.replicas)
    clean_broker = forward(admin.Admin.clean_broker)
    broker_epochs = forward(admin.Admin.broker_epochs)
    controller_config = forward(admin.Admin.controller_config)
    set_controller_config = forward(admin.Admin.set_controller_config)

    # Servers that run
    broker_addresses = forward(admin.Admin.broker_addresses)
    broker_status = forward(admin.Admin.broker_status)
    broker_settings = forward(admin.Admin.broker_settings)
    set_broker = forward(admin.Admin.set_broker)
    drain_broker = forward(admin.Admin.drain_broker)
    restore_broker = forward(admin.Admin.restore_broker)
    namesrv_addresses = forward_plain(admin.Admin.namesrv_addresses)
    namesrv_settings = forward(admin.Admin.namesrv_settings)
    set_namesrv = forward(admin.Admin.set_namesrv)
    kv = forward(admin.Admin.kv)
    put_kv = forward(admin.Admin.put_kv)
    delete_kv = forward(admin.Admin.delete_kv)
    producers = forward(admin.Admin.producers)
    clean_leftovers = forward(admin.Admin.clean_leftovers)
    flow = forward(admin.Admin.flow)
    consume_directly = forward(admin.Admin.consume_directly)

    # Topics
    topic_groups = forward(admin.Admin.topic_groups)
    topics = forward(admin.Admin.topics)
    create_topic = forward(admin.Admin.create_topic)
    topic_shapes = forward(admin.Admin.topic_shapes)
    set_topic = forward(admin.Admin.set_topic)
    delete_topic = forward(admin.Admin.delete_topic)
    route = forward(admin.Admin.route)
    topic_queues = forward(admin.Admin.topic_queues)
    topic_configs = forward(admin.Admin.topic_configs)
    queues_at = forward(admin.Admin.queues_at)

    # Messages
    messages_by_key = forward(admin.Admin.messages_by_key)
    messages_by_id = forward(admin.Admin.messages_by_id)
    message_at = forward(admin.Admin.message_at)
    message_fates = forward(admin.Admin.message_fates)
    trace = forward(admin.Admin.trace)

    # Groups
    groups = forward(admin.Admin.groups)
    group_rows = forward(admin.Admin.group_rows)
    members = forward(admin.Admin.members)
    member_rows = forward(admin.Admin.member_rows)
    group_progress = forward(admin.Admin.group_progress)
    consume_rate = forward(admin.Admin.consume_rate)
    all_progress = forward(admin.Admin.all_progress)
    time_spans = forward(admin.Admin.time_spans)
    plan_reset = forward(admin.Admin.plan_reset)
    reset_group = forward(admin.Admin.reset_group)
    skip_backlog = forward(admin.Admin.skip_backlog)
    clone_group = forward(admin.Admin.clone_group)
    delete_group = forward(admin.Admin.delete_group)
    group_config = forward(admin.Admin.group_config)
    group_configs = forward(admin.Admin.group_configs)
    set_group = forward(admin.Admin.set_group)
    forbid = forward(admin.Admin.forbid)
    allow = forward(admin.Admin.allow)
    forbidden_topics = forward(admin.Admin.forbidden_topics)

    # Delays
    timed_counts = forward(admin.Admin.timed_counts)

    # Dead letters
    dead_letter_groups = forward(admin.Admin.dead_letter_groups)
    dead_letters = forward_pages(admin.Admin.dead_letters)
    resend_dead_letters = forward(admin.Admin.resend_dead_letters)

    # Transactions
    open_transactions = forward_pages(admin.Admin.open_transactions)
    given_up_transactions = forward_pages(admin.Admin.given_up_transactions)
    resume_transaction = forward(admin.Admin.resume_transaction)

    # Users, policies and accounts
    users = forward(admin.Admin.users)
    user = forward(admin.Admin.user)
    create_user = forward(admin.Admin.create_user)
    update_user = forward(admin.Admin.update_user)
    delete_user = forward(admin.Admin.delete_user)
    acls = forward(admin.Admin.acls)
    acl = forward(admin.Admin.acl)
    grant = forward(admin.Admin.grant)
    put_acl = forward(admin.Admin.put_acl)
    revoke = forward(admin.Admin.revoke)
    check_right = forward(admin.Admin.check_right)
    set_account = forward(admin.Admin.set_account)
    delete_account = forward(admin.Admin.delete_account)
    account_versions = forward(admin.Admin.account_versions)
    accounts = forward(admin.Admin.accounts)
    set_white_addresses = forward(admin.Admin.set_white_addresses)
