"""Which headers belong to which request code, so that a tool can read any command it meets.

A code that is not listed carries no header either way: its request is all in the body, or all in the code.
"""

from typing import NamedTuple

from bolide.protocol.codes import RequestCode
from bolide.protocol.headers import (
    access,
    callbacks,
    consume,
    controller,
    filters,
    groups,
    operating,
    pop,
    registration,
    replication,
    routes,
    send,
    topics,
)
from bolide.protocol.headers.header import Header, RequestHeader


class Headers(NamedTuple):
    """The headers of one code; `is_short` says that its request is written with the one-letter names."""

    request: type[RequestHeader] | None = None
    answer: type[Header] | None = None
    is_short: bool = False


_NONE = Headers()

_TABLE: dict[int, Headers] = {
    # producer to broker
    RequestCode.SEND_MESSAGE: Headers(send.SendMessageRequest, send.SendMessageAnswer),
    RequestCode.SEND_MESSAGE_V2: Headers(send.SendMessageRequest, send.SendMessageAnswer, is_short=True),
    RequestCode.SEND_BATCH_MESSAGE: Headers(send.SendMessageRequest, send.SendMessageAnswer, is_short=True),
    RequestCode.SEND_REPLY_MESSAGE: Headers(send.SendMessageRequest, send.SendMessageAnswer),
    RequestCode.SEND_REPLY_MESSAGE_V2: Headers(send.SendMessageRequest, send.SendMessageAnswer, is_short=True),
    RequestCode.END_TRANSACTION: Headers(send.EndTransactionRequest),
    RequestCode.RECALL_MESSAGE: Headers(send.RecallMessageRequest, send.RecallMessageAnswer),
    # consumer to broker
    RequestCode.PULL_MESSAGE: Headers(consume.PullMessageRequest, consume.PullMessageAnswer),
    RequestCode.LITE_PULL_MESSAGE: Headers(consume.PullMessageRequest, consume.PullMessageAnswer),
    RequestCode.QUERY_CONSUMER_OFFSET: Headers(consume.QueryConsumerOffsetRequest, consume.OffsetAnswer),
    RequestCode.UPDATE_CONSUMER_OFFSET: Headers(consume.UpdateConsumerOffsetRequest),
    RequestCode.GET_MAX_OFFSET: Headers(consume.GetMaxOffsetRequest, consume.OffsetAnswer),
    RequestCode.GET_MIN_OFFSET: Headers(consume.GetMinOffsetRequest, consume.OffsetAnswer),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Headers(consume.SearchOffsetRequest, consume.OffsetAnswer),
    RequestCode.GET_EARLIEST_MSG_STORETIME: Headers(
        consume.GetEarliestStoreTimeRequest, consume.GetEarliestStoreTimeAnswer
    ),
    RequestCode.HEART_BEAT: Headers(None, consume.HeartbeatAnswer),
    RequestCode.UNREGISTER_CLIENT: Headers(consume.UnregisterClientRequest),
    RequestCode.CONSUMER_SEND_MSG_BACK: Headers(consume.SendBackRequest),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: Headers(consume.GetConsumerListRequest),
    RequestCode.QUERY_MESSAGE: Headers(consume.QueryMessageRequest, consume.QueryMessageAnswer),
    RequestCode.VIEW_MESSAGE_BY_ID: Headers(consume.ViewMessageRequest),
    # POP consumer to broker
    RequestCode.POP_MESSAGE: Headers(pop.PopMessageRequest, pop.PopMessageAnswer),
    RequestCode.ACK_MESSAGE: Headers(pop.AckMessageRequest),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: Headers(pop.ChangeInvisibleTimeRequest, pop.ChangeInvisibleTimeAnswer),
    RequestCode.NOTIFICATION: Headers(pop.NotificationRequest, pop.NotificationAnswer),
    RequestCode.POLLING_INFO: Headers(pop.PollingCountRequest, pop.PollingCountAnswer),
    RequestCode.PEEK_MESSAGE: Headers(pop.PeekMessageRequest, pop.PopMessageAnswer),
    # client or admin to name server
    RequestCode.GET_ROUTEINFO_BY_TOPIC: Headers(routes.GetRouteRequest),
    RequestCode.PUT_KV_CONFIG: Headers(routes.PutKvRequest),
    RequestCode.GET_KV_CONFIG: Headers(routes.GetKvRequest, routes.GetKvAnswer),
    RequestCode.DELETE_KV_CONFIG: Headers(routes.DeleteKvRequest),
    RequestCode.GET_KVLIST_BY_NAMESPACE: Headers(routes.GetKvListRequest),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: Headers(routes.WipeWritePermissionRequest, routes.WipeWritePermissionAnswer),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: Headers(routes.AddWritePermissionRequest, routes.AddWritePermissionAnswer),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: Headers(routes.DeleteTopicInNamesrvRequest),
    RequestCode.GET_TOPICS_BY_CLUSTER: Headers(routes.GetTopicsByClusterRequest),
    # filter servers of 4.x
    RequestCode.REGISTER_FILTER_SERVER: Headers(
        filters.RegisterFilterServerRequest, filters.RegisterFilterServerAnswer
    ),
    RequestCode.REGISTER_MESSAGE_FILTER_CLASS: Headers(filters.RegisterFilterClassRequest),
    # broker to name server, and back
    RequestCode.REGISTER_BROKER: Headers(registration.RegisterBrokerRequest, registration.RegisterBrokerAnswer),
    RequestCode.UNREGISTER_BROKER: Headers(registration.UnregisterBrokerRequest),
    RequestCode.QUERY_DATA_VERSION: Headers(registration.QueryDataVersionRequest, registration.QueryDataVersionAnswer),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: Headers(registration.RegisterTopicRequest),
    RequestCode.BROKER_HEARTBEAT: Headers(registration.BrokerHeartbeatRequest),
    RequestCode.GET_BROKER_MEMBER_GROUP: Headers(registration.GetBrokerMembersRequest),
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: Headers(registration.NotifyLeastBrokerIdRequest),
    # broker to client
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: Headers(callbacks.NotifyConsumersChangedRequest),
    RequestCode.CHECK_TRANSACTION_STATE: Headers(callbacks.CheckTransactionRequest),
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: Headers(callbacks.ResetOffsetRequest),
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: Headers(callbacks.GetConsumerStatusRequest),
    RequestCode.GET_CONSUMER_RUNNING_INFO: Headers(callbacks.GetConsumerStateRequest),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: Headers(callbacks.ConsumeDirectlyRequest),
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: Headers(callbacks.PushReplyRequest),
    # slave to master, broker to broker
    RequestCode.GET_ALL_TOPIC_CONFIG: Headers(
        replication.GetAllTopicConfigRequest, replication.GetAllTopicConfigAnswer
    ),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Headers(
        replication.GetAllGroupConfigRequest, replication.GetAllGroupConfigAnswer
    ),
    RequestCode.EXCHANGE_BROKER_HA_INFO: Headers(replication.ExchangeHaStateRequest, replication.ExchangeHaStateAnswer),
    RequestCode.RESET_MASTER_FLUSH_OFFSET: Headers(replication.ResetMasterFlushOffsetRequest),
    # to a controller, and back
    RequestCode.CONTROLLER_GET_METADATA_INFO: Headers(None, controller.GetControllerMetadataAnswer),
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: Headers(
        controller.GetNextBrokerIdRequest, controller.GetNextBrokerIdAnswer
    ),
    RequestCode.CONTROLLER_APPLY_BROKER_ID: Headers(controller.ApplyBrokerIdRequest, controller.ApplyBrokerIdAnswer),
    RequestCode.CONTROLLER_REGISTER_BROKER: Headers(
        controller.RegisterReplicaRequest, controller.RegisterReplicaAnswer
    ),
    RequestCode.CONTROLLER_ELECT_MASTER: Headers(controller.ElectMasterRequest, controller.ElectMasterAnswer),
    RequestCode.CONTROLLER_GET_REPLICA_INFO: Headers(controller.GetReplicaRequest, controller.GetReplicaAnswer),
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: Headers(
        controller.AlterSyncStateSetRequest, controller.AlterSyncStateSetAnswer
    ),
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: Headers(controller.NotifyRoleChangedRequest),
    RequestCode.CLEAN_BROKER_DATA: Headers(controller.CleanBrokerRequest),
    # admin to broker: topics
    RequestCode.UPDATE_AND_CREATE_TOPIC: Headers(topics.UpdateTopicRequest),
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: Headers(topics.UpdateTopicRequest),
    RequestCode.DELETE_TOPIC_IN_BROKER: Headers(topics.DeleteTopicRequest),
    RequestCode.GET_TOPIC_CONFIG: Headers(topics.GetTopicConfigRequest),
    RequestCode.GET_TOPIC_STATS_INFO: Headers(topics.GetTopicStatsRequest),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: Headers(topics.QueryTopicConsumersRequest),
    RequestCode.QUERY_CONSUME_TIME_SPAN: Headers(topics.QueryConsumeTimeSpanRequest),
    # admin to broker: groups
    RequestCode.DELETE_SUBSCRIPTIONGROUP: Headers(groups.DeleteGroupRequest),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: Headers(groups.GetGroupConfigRequest),
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: Headers(groups.UpdateGroupForbiddenRequest),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: Headers(groups.GetConsumerConnectionsRequest),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: Headers(groups.GetProducerConnectionsRequest),
    RequestCode.GET_CONSUME_STATS: Headers(groups.GetConsumeStatsRequest),
    RequestCode.GET_BROKER_CONSUME_STATS: Headers(groups.GetBrokerConsumeStatsRequest),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: Headers(callbacks.ResetOffsetRequest),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Headers(callbacks.GetConsumerStatusRequest),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: Headers(groups.QueryTopicsByConsumerRequest),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: Headers(groups.QuerySubscriptionRequest),
    RequestCode.QUERY_CORRECTION_OFFSET: Headers(groups.QueryCorrectionOffsetRequest),
    RequestCode.CLONE_GROUP_OFFSET: Headers(groups.CloneGroupOffsetRequest),
    # admin to broker: the broker itself
    RequestCode.GET_BROKER_CONFIG: Headers(None, operating.GetBrokerConfigAnswer),
    RequestCode.VIEW_BROKER_STATS_DATA: Headers(operating.ViewBrokerStatsRequest),
    RequestCode.QUERY_CONSUME_QUEUE: Headers(operating.QueryConsumeQueueRequest),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: Headers(operating.ResumeCheckHalfMessageRequest),
    RequestCode.ADD_BROKER: Headers(operating.AddBrokerRequest),
    RequestCode.REMOVE_BROKER: Headers(operating.RemoveBrokerRequest),
    RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: Headers(operating.CheckRocksdbQueuesRequest),
    RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: Headers(operating.ExportRocksdbConfigRequest),
    RequestCode.SET_COMMITLOG_READ_MODE: Headers(operating.SetLogReadModeRequest),
    # admin to broker: access control
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: Headers(access.UpdateAclRequest),
    RequestCode.DELETE_ACL_CONFIG: Headers(access.DeleteAclRequest),
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: Headers(None, access.GetAclVersionAnswer),
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: Headers(access.UpdateWhiteAddressesRequest),
    RequestCode.AUTH_CREATE_USER: Headers(access.UserRequest),
    RequestCode.AUTH_UPDATE_USER: Headers(access.UserRequest),
    RequestCode.AUTH_DELETE_USER: Headers(access.UserRequest),
    RequestCode.AUTH_GET_USER: Headers(access.UserRequest),
    RequestCode.AUTH_LIST_USER: Headers(access.ListUsersRequest),
    RequestCode.AUTH_CREATE_ACL: Headers(access.AuthAclRequest),
    RequestCode.AUTH_UPDATE_ACL: Headers(access.AuthAclRequest),
    RequestCode.AUTH_DELETE_ACL: Headers(access.AuthDeleteAclRequest),
    RequestCode.AUTH_GET_ACL: Headers(access.AuthAclRequest),
    RequestCode.AUTH_LIST_ACL: Headers(access.AuthListAclRequest),
}


def header_of(code: int) -> Headers:
    """The headers of a request code; a code without any, or one nobody knows, has none."""
    return _TABLE.get(code, _NONE)
