"""The wire names of every header, against a second transcription of them.

The table below was written from the protocol's description and compared with the field lists of the released 4.9.7 and
5.5.0 jars; it shares nothing with the source. `name:T` with T one of s string, i int32, l int64, b boolean, e enum; a
star marks what must be there. One line for each code that has a header: number, name, request, answer. Names that begin
with `bolide` are ours, and RocketMQ's servers pass over them.
"""

from typing import Any

import pytest

from bolide.model.names import KINDS
from bolide.model.queue import PhysicalOffset, QueueOffset
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers import BoundaryType, Header, Int32, Int64, RequestHeader, SendMessageRequest, header_of

SEND = (
    "producerGroup:s* topic:s* defaultTopic:s* defaultTopicQueueNums:i* queueId:i* sysFlag:i* bornTimestamp:l* flag:i*"
    " properties:s reconsumeTimes:i unitMode:b batch:b maxReconsumeTimes:i"
)
SEND_ANSWER = "msgId:s* queueId:i* queueOffset:l* transactionId:s batchUniqId:s recallHandle:s MSG_REGION:s TRACE_ON:b"
PULL = (
    "consumerGroup:s* topic:s* queueId:i* queueOffset:l* maxMsgNums:i* sysFlag:i* commitOffset:l*"
    " suspendTimeoutMillis:l* subscription:s subVersion:l* expressionType:s maxMsgBytes:i requestSource:i"
    " proxyFrowardClientId:s liteTopic:s"
)
PULL_ANSWER = (
    "suggestWhichBrokerId:l* nextBeginOffset:l* minOffset:l* maxOffset:l*"
    " offsetDelta:l topicSysFlag:i groupSysFlag:i forbiddenType:i"
)
POP_ANSWER = "popTime:l* invisibleTime:l* reviveQid:i* restNum:l* startOffsetInfo:s msgOffsetInfo:s orderCountInfo:s"
BROKER = "brokerName:s* brokerAddr:s* clusterName:s* brokerId:l*"
TOPIC = (
    "topic:s* defaultTopic:s* readQueueNums:i* writeQueueNums:i* perm:i* topicFilterType:s* topicSysFlag:i order:b*"
    " attributes:s force:b"
)
RESET = "topic:s* group:s* timestamp:l* isForce:b* queueId:i offset:l"
MASTER = "masterBrokerId:l masterAddress:s masterEpoch:i syncStateSetEpoch:i"
HA = "masterHaAddress:s masterFlushOffset:l masterAddress:s"

TABLE = f"""
10 SEND_MESSAGE | {SEND} | {SEND_ANSWER}
310 SEND_MESSAGE_V2 | {SEND} | {SEND_ANSWER}
320 SEND_BATCH_MESSAGE | {SEND} | {SEND_ANSWER}
324 SEND_REPLY_MESSAGE | {SEND} | {SEND_ANSWER}
325 SEND_REPLY_MESSAGE_V2 | {SEND} | {SEND_ANSWER}
37 END_TRANSACTION | topic:s producerGroup:s* tranStateTableOffset:l* commitLogOffset:l* commitOrRollback:i* \
fromTransactionCheck:b msgId:s* transactionId:s |
370 RECALL_MESSAGE | producerGroup:s topic:s* recallHandle:s* | msgId:s* MSG_REGION:s

11 PULL_MESSAGE | {PULL} | {PULL_ANSWER}
361 LITE_PULL_MESSAGE | {PULL} | {PULL_ANSWER}
14 QUERY_CONSUMER_OFFSET | consumerGroup:s* topic:s* queueId:i* setZeroIfNotFound:b | offset:l*
15 UPDATE_CONSUMER_OFFSET | consumerGroup:s* topic:s* queueId:i* commitOffset:l* |
30 GET_MAX_OFFSET | topic:s* queueId:i* committed:b | offset:l*
31 GET_MIN_OFFSET | topic:s* queueId:i* | offset:l*
29 SEARCH_OFFSET_BY_TIMESTAMP | topic:s* queueId:i* timestamp:l* boundaryType:e liteTopic:s | offset:l*
32 GET_EARLIEST_MSG_STORETIME | topic:s* queueId:i* | timestamp:l*
34 HEART_BEAT | none | IS_SUPPORT_HEART_BEAT_V2:b IS_SUB_CHANGE:b
35 UNREGISTER_CLIENT | clientID:s* producerGroup:s consumerGroup:s |
36 CONSUMER_SEND_MSG_BACK | offset:l* group:s* delayLevel:i* originMsgId:s originTopic:s unitMode:b \
maxReconsumeTimes:i |
38 GET_CONSUMER_LIST_BY_GROUP | consumerGroup:s* |
12 QUERY_MESSAGE | topic:s* key:s* maxNum:i* beginTimestamp:l* endTimestamp:l* _UNIQUE_KEY_QUERY:b indexType:s \
lastKey:s | indexLastUpdateTimestamp:l* indexLastUpdatePhyoffset:l*
33 VIEW_MESSAGE_BY_ID | offset:l* topic:s |

200050 POP_MESSAGE | consumerGroup:s* topic:s* queueId:i* maxMsgNums:i* invisibleTime:l* pollTime:l* bornTime:l* \
initMode:i* expType:s exp:s order:b attemptId:s | {POP_ANSWER}
200051 ACK_MESSAGE | consumerGroup:s* topic:s* queueId:i* extraInfo:s* offset:l* liteTopic:s |
200053 CHANGE_MESSAGE_INVISIBLETIME | consumerGroup:s* topic:s* queueId:i* extraInfo:s* offset:l* invisibleTime:l* \
liteTopic:s suspend:b | popTime:l* invisibleTime:l* reviveQid:i*
200054 NOTIFICATION | consumerGroup:s* topic:s* queueId:i* pollTime:l* bornTime:l* order:b attemptId:s expType:s exp:s \
| hasMsg:b* pollingFull:b
200055 POLLING_INFO | consumerGroup:s* topic:s* queueId:i* | pollingNum:i*
200052 PEEK_MESSAGE | topic:s* queueId:i* maxMsgNums:i* consumerGroup:s* | {POP_ANSWER}

105 GET_ROUTEINFO_BY_TOPIC | topic:s* acceptStandardJsonOnly:b |
100 PUT_KV_CONFIG | namespace:s* key:s* value:s* |
101 GET_KV_CONFIG | namespace:s* key:s* | value:s
102 DELETE_KV_CONFIG | namespace:s* key:s* |
219 GET_KVLIST_BY_NAMESPACE | namespace:s* |
205 WIPE_WRITE_PERM_OF_BROKER | brokerName:s* | wipeTopicCount:i*
327 ADD_WRITE_PERM_OF_BROKER | brokerName:s* | addTopicCount:i*
216 DELETE_TOPIC_IN_NAMESRV | topic:s* clusterName:s |
224 GET_TOPICS_BY_CLUSTER | cluster:s* |

103 REGISTER_BROKER | brokerName:s* brokerAddr:s* clusterName:s* haServerAddr:s* brokerId:l* compressed:b bodyCrc32:i \
heartbeatTimeoutMillis:l enableActingMaster:b | haServerAddr:s masterAddr:s
104 UNREGISTER_BROKER | {BROKER} |
301 REGISTER_FILTER_SERVER | filterServerAddr:s* | brokerName:s* brokerId:l*
302 REGISTER_MESSAGE_FILTER_CLASS | consumerGroup:s* topic:s* className:s* classCRC:i* |
322 QUERY_DATA_VERSION | {BROKER} | changed:b*
217 REGISTER_TOPIC_IN_NAMESRV | topic:s* |
904 BROKER_HEARTBEAT | clusterName:s* brokerAddr:s* brokerName:s* brokerId:l epoch:i maxOffset:l confirmOffset:l \
heartbeatTimeoutMills:l electionPriority:i |
901 GET_BROKER_MEMBER_GROUP | clusterName:s* brokerName:s* |
905 NOTIFY_MIN_BROKER_ID_CHANGE | minBrokerId:l brokerName:s minBrokerAddr:s offlineBrokerAddr:s haBrokerAddr:s |

40 NOTIFY_CONSUMER_IDS_CHANGED | consumerGroup:s* |
39 CHECK_TRANSACTION_STATE | tranStateTableOffset:l* commitLogOffset:l* msgId:s transactionId:s offsetMsgId:s topic:s |
220 RESET_CONSUMER_CLIENT_OFFSET | {RESET} |
221 GET_CONSUMER_STATUS_FROM_CLIENT | topic:s* group:s* clientAddr:s |
307 GET_CONSUMER_RUNNING_INFO | consumerGroup:s* clientId:s* jstackEnable:b |
309 CONSUME_MESSAGE_DIRECTLY | consumerGroup:s* clientId:s msgId:s brokerName:s topic:s topicSysFlag:i groupSysFlag:i |
326 PUSH_REPLY_MESSAGE_TO_CLIENT | producerGroup:s* topic:s* defaultTopic:s* defaultTopicQueueNums:i* queueId:i* \
sysFlag:i* bornTimestamp:l* flag:i* properties:s reconsumeTimes:i unitMode:b bornHost:s* storeHost:s* \
storeTimestamp:l* |

21 GET_ALL_TOPIC_CONFIG | topicSeq:i dataVersion:s maxTopicNum:i | totalTopicNum:i
201 GET_ALL_SUBSCRIPTIONGROUP_CONFIG | groupSeq:i dataVersion:s maxGroupNum:i | totalGroupNum:i
906 EXCHANGE_BROKER_HA_INFO | {HA} | {HA}
908 RESET_MASTER_FLUSH_OFFSET | masterFlushOffset:l* |
1005 CONTROLLER_GET_METADATA_INFO | none | group:s controllerLeaderId:s controllerLeaderAddress:s isLeader:b peers:s
1012 CONTROLLER_GET_NEXT_BROKER_ID | clusterName:s brokerName:s* | clusterName:s brokerName:s nextBrokerId:l
1013 CONTROLLER_APPLY_BROKER_ID | clusterName:s brokerName:s* appliedBrokerId:l* registerCheckCode:s* \
bolideReplacedId:l | clusterName:s brokerName:s
1003 CONTROLLER_REGISTER_BROKER | clusterName:s brokerName:s* brokerId:l* brokerAddress:s* invokeTime:l bolideSeat:s \
| clusterName:s brokerName:s {MASTER}
1002 CONTROLLER_ELECT_MASTER | clusterName:s brokerName:s* brokerId:l designateElect:b invokeTime:l | {MASTER}
1004 CONTROLLER_GET_REPLICA_INFO | brokerName:s* bolideReplicaId:l bolideAddress:s bolideSeat:s \
| masterBrokerId:l masterAddress:s masterEpoch:i
1001 CONTROLLER_ALTER_SYNC_STATE_SET | brokerName:s* masterBrokerId:l* masterEpoch:i* invokeTime:l \
| newSyncStateSetEpoch:i
1008 NOTIFY_BROKER_ROLE_CHANGED | {MASTER} |
1011 CLEAN_BROKER_DATA | clusterName:s brokerName:s* brokerControllerIdsToClean:s isCleanLivingBroker:b invokeTime:l |

17 UPDATE_AND_CREATE_TOPIC | {TOPIC} |
513 UPDATE_AND_CREATE_STATIC_TOPIC | {TOPIC} |
215 DELETE_TOPIC_IN_BROKER | topic:s* |
351 GET_TOPIC_CONFIG | topic:s* |
202 GET_TOPIC_STATS_INFO | topic:s* |
300 QUERY_TOPIC_CONSUME_BY_WHO | topic:s* |
303 QUERY_CONSUME_TIME_SPAN | topic:s* group:s* |

207 DELETE_SUBSCRIPTIONGROUP | groupName:s* cleanOffset:b removeOffset:b |
352 GET_SUBSCRIPTIONGROUP_CONFIG | group:s* |
353 UPDATE_AND_GET_GROUP_FORBIDDEN | group:s* topic:s* readable:b |
203 GET_CONSUMER_CONNECTION_LIST | consumerGroup:s* |
204 GET_PRODUCER_CONNECTION_LIST | producerGroup:s* |
208 GET_CONSUME_STATS | consumerGroup:s* topic:s topicList:s |
317 GET_BROKER_CONSUME_STATS | isOrder:b* |
222 INVOKE_BROKER_TO_RESET_OFFSET | {RESET} |
223 INVOKE_BROKER_TO_GET_CONSUMER_STATUS | topic:s* group:s* clientAddr:s |
343 QUERY_TOPICS_BY_CONSUMER | group:s* |
345 QUERY_SUBSCRIPTION_BY_CONSUMER | group:s* topic:s |
308 QUERY_CORRECTION_OFFSET | filterGroups:s compareGroup:s* topic:s* |
314 CLONE_GROUP_OFFSET | srcGroup:s* destGroup:s* topic:s offline:b |

26 GET_BROKER_CONFIG | none | version:s*
315 VIEW_BROKER_STATS_DATA | statsName:s* statsKey:s* |
321 QUERY_CONSUME_QUEUE | topic:s queueId:i index:l count:i consumerGroup:s |
323 RESUME_CHECK_HALF_MESSAGE | msgId:s topic:s |
902 ADD_BROKER | configPath:s |
903 REMOVE_BROKER | brokerName:s* brokerClusterName:s* brokerId:l* |
354 CHECK_ROCKSDB_CQ_WRITE_PROGRESS | topic:s* checkStoreTime:l |
355 EXPORT_ROCKSDB_CONFIG_TO_JSON | configType:s* |
2004 SET_COMMITLOG_READ_MODE | READ_AHEAD_MODE:s |

50 UPDATE_AND_CREATE_ACL_CONFIG | accessKey:s* secretKey:s whiteRemoteAddress:s admin:b defaultTopicPerm:s \
defaultGroupPerm:s topicPerms:s groupPerms:s |
51 DELETE_ACL_CONFIG | accessKey:s* |
52 GET_BROKER_CLUSTER_ACL_INFO | none | version:s* allAclFileVersion:s brokerName:s* brokerAddr:s* clusterName:s*
53 UPDATE_GLOBAL_WHITE_ADDRS_CONFIG | globalWhiteAddrs:s* aclFileFullPath:s |
3001 AUTH_CREATE_USER | username:s |
3002 AUTH_UPDATE_USER | username:s |
3003 AUTH_DELETE_USER | username:s |
3004 AUTH_GET_USER | username:s |
3005 AUTH_LIST_USER | filter:s |
3006 AUTH_CREATE_ACL | subject:s |
3007 AUTH_UPDATE_ACL | subject:s |
3008 AUTH_DELETE_ACL | subject:s policyType:s resource:s |
3009 AUTH_GET_ACL | subject:s |
3010 AUTH_LIST_ACL | subjectFilter:s resourceFilter:s |
"""
ANY_REQUEST = {"bname:s", "ns:s", "nsd:b", "lo:b"}
LETTERS = (
    "a:producerGroup b:topic c:defaultTopic d:defaultTopicQueueNums e:queueId f:sysFlag g:bornTimestamp h:flag"
    " i:properties j:reconsumeTimes k:unitMode l:maxReconsumeTimes m:batch n:bname"
)
# The requests of the protocol whose matter is all in the body, or all in the code.
WITHOUT_HEADER = [200, 18, 225, 25, 28, 328, 305, 306, 316, 329, 41, 42, 46, 400, 401, 402, 43, 45, 60, 61, 907]
WITHOUT_HEADER += [1006, 1007, 1009, 1010]
WITHOUT_HEADER += [106, 206, 304, 311, 312, 313, 318, 319, 200151, 200056, 2001, 2002, 2003]

KIND_LETTERS: dict[Any, str] = {
    **dict.fromkeys(KINDS, "s"),
    bool: "b",
    Int32: "i",
    Int64: "l",
    QueueOffset: "l",
    PhysicalOffset: "l",
    BoundaryType: "e",
}

Row = tuple[int, str, set[str], set[str]]


def rows() -> list[Row]:
    found = []
    for line in filter(None, TABLE.splitlines()):
        name, request, answer = (cell.strip() for cell in line.split("|"))
        code, word = name.split()
        found.append((int(code), word, set(request.split()), set(answer.split())))
    return found


ROWS = rows()


def declared(header: type[Header] | None) -> set[str]:
    if header is None:
        return set()
    return {
        f"{key}:{KIND_LETTERS[field.kind]}{'*' if field.is_required else ''}"
        for field in header.wire_fields
        for key in field.keys
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_wire_names_types_and_what_is_required_are_rocketmqs(row):
    code, name, request, answer = row
    assert RequestCode(code).name == name
    if request == {"none"}:
        assert header_of(code).request is None
    else:
        assert declared(header_of(code).request) == request | ANY_REQUEST
    assert declared(header_of(code).answer) == answer


def test_the_table_names_every_code_once_and_no_other_code_has_a_header():
    listed = [row[0] for row in ROWS]
    assert len(listed) == len(set(listed))
    assert {int(code) for code in RequestCode if header_of(code) != header_of(-1)} == set(listed)


@pytest.mark.parametrize("code", WITHOUT_HEADER)
def test_a_request_without_header_has_a_name_and_no_header(code):
    assert RequestCode(code)
    assert header_of(code) == (None, None, False)


def test_an_unknown_code_has_no_header():
    assert header_of(987654) == (None, None, False)


def test_short_letters_are_those_of_the_second_send():
    letters = {f"{field.short}:{field.keys[0]}" for field in SendMessageRequest.wire_fields if field.short}
    assert letters == set(LETTERS.split())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_only_310_320_and_325_are_written_with_letters(row):
    assert header_of(row[0]).is_short == (row[0] in {310, 320, 325})


def test_every_request_header_carries_the_hints_of_5x():
    requests = [header_of(code).request for code, *_ in ROWS]
    assert all(issubclass(header, RequestHeader) for header in requests if header)
