"""JSON bodies exactly as Java emits them (5.x shape), one or more for each type; bare and object keys included."""

from bolide.protocol import bodies as b

QUEUE = '{"brokerName":"broker-a","queueId":0,"topic":"T1"}'
QUEUE_1 = '{"brokerName":"broker-a","queueId":1,"topic":"T1"}'
VERSION = '{"counter":7,"stateVersion":0,"timestamp":1700000000000}'
TOPIC = (
    '{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T1",'
    '"topicSysFlag":0,"writeQueueNums":4}'
)
TOPIC_TABLE = f'{{"dataVersion":{VERSION},"topicConfigTable":{{"T1":{TOPIC}}}}}'
TOPIC_TABLE_5 = (
    f'{{"dataVersion":{VERSION},"mappingDataVersion":{VERSION},"topicConfigTable":{{"T1":{TOPIC}}},'
    '"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}'
)
SUBSCRIPTION = (
    '{"classFilterMode":false,"codeSet":[2598919,2598920],"expressionType":"TAG","subString":"TagA||TagB",'
    '"subVersion":1794773803102,"tagsSet":["TagA","TagB"],"topic":"T1"}'
)
CONNECTION = '{"clientAddr":"10.0.0.9:5000","clientId":"c1","language":"JAVA","version":401}'
GROUP = (
    '{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,'
    '"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"CG","groupRetryPolicy":{"type":"CUSTOMIZED"},'
    '"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
    '"whichBrokerWhenConsumeSlowly":1}'
)
CONSUME_STATS = (
    '{"consumeTps":1.5,"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T1"}:{"brokerOffset":10,'
    '"consumerOffset":8,"lastTimestamp":1700000000000,"pullOffset":0}}}'
)
REQUEST_MODE = '{"consumerGroup":"CG","mode":"POP","popShareQueueNum":8,"topic":"T1"}'

ROUTE = (
    '{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a",'
    '"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":'
    '"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
)
HEARTBEAT = (
    '{"clientID":"10.0.0.9@1234#567","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":'
    '"CONSUME_PASSIVELY","groupName":"CG","messageModel":"CLUSTERING","subscriptionDataSet":['
    + SUBSCRIPTION
    + '],"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"PG"}],"withoutSub":false}'
)
RUNNING_CONSUMER = (
    '{"mqPopTable":{},"mqTable":{{"brokerName":"broker-a","queueId":0,"topic":"T1"}:{"cachedMsgCount":0,'
    '"cachedMsgMaxOffset":0,"cachedMsgMinOffset":0,"cachedMsgSizeInMiB":0,"commitOffset":4,"droped":false,'
    '"lastConsumeTimestamp":0,"lastLockTimestamp":0,"lastPullTimestamp":0,"locked":true,"transactionMsgCount":0,'
    '"transactionMsgMaxOffset":0,"transactionMsgMinOffset":0,"tryUnlockTimes":0}},"properties":{"PROP_NAMESERVER_ADDR":'
    '"127.0.0.1:9876;","PROP_CONSUMEORDERLY":"false","PROP_CONSUME_TYPE":"CONSUME_PASSIVELY",'
    '"PROP_CONSUMER_START_TIMESTAMP":"1794774485107","PROP_THREADPOOL_CORE_SIZE":"20","PROP_CLIENT_VERSION":"V4_9_8"},'
    '"statusTable":{"T1":{"consumeFailedMsgs":0,"consumeFailedTPS":0.0,"consumeOKTPS":0.0,"consumeRT":0.0,"pullRT":0.0,'
    '"pullTPS":0.0}},"subscriptionSet":[' + SUBSCRIPTION + '],"userConsumerInfo":{}}'
)
STATS_ITEM = '{"avgpt":0.0,"sum":0,"tps":0.0}'

SAMPLES: list[tuple[type[b.Body], str]] = [
    (b.QueueName, QUEUE),
    (b.DataVersion, VERSION),
    (b.TopicRoute, ROUTE),
    (b.TopicRoute, ROUTE.replace('"queueDatas"', '"orderTopicConf":"broker-a:4;broker-b:4","queueDatas"')),
    (b.TopicRoute, ROUTE.replace("false}", 'false,"zoneName":"z1"}')),
    (b.TopicRoute, ROUTE[:-1] + ',"topicQueueMappingByBroker":{"broker-a":{"currIdMap":{0:1},"topic":"T1"}}}'),
    (
        b.Clusters,
        '{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a","cluster":'
        '"DefaultCluster","enableActingMaster":false}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}',
    ),
    (b.TopicConfig, TOPIC),
    (b.TopicConfig, TOPIC.replace('"order"', '"mappingDetail":{"hostedQueues":{0:[]},"topic":"T1"},"order"')),
    (b.TopicTable, TOPIC_TABLE),
    (b.TopicTable, TOPIC_TABLE_5),
    (b.Registration, f'{{"filterServerList":[],"topicConfigSerializeWrapper":{TOPIC_TABLE}}}'),
    (b.Registration, f'{{"filterServerList":[],"topicConfigSerializeWrapper":{TOPIC_TABLE_5}}}'),
    (b.Heartbeat, HEARTBEAT),
    (b.Subscription, SUBSCRIPTION),
    (b.ConsumerList, '{"consumerIdList":["c1","c2"]}'),
    (b.LockRequest, f'{{"clientId":"c","consumerGroup":"CG","mqSet":[{QUEUE}],"onlyThisBroker":false}}'),
    (b.UnlockRequest, f'{{"clientId":"c","consumerGroup":"CG","mqSet":[{QUEUE}],"onlyThisBroker":false}}'),
    (b.LockAnswer, f'{{"lockOKMQSet":[{QUEUE},{QUEUE_1}]}}'),
    (b.ClientCheck, f'{{"clientId":"c1","group":"CG","subscriptionData":{SUBSCRIPTION}}}'),
    (
        b.TopicStats,
        '{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T1"}:{"lastUpdateTimestamp":1700000000000,'
        '"maxOffset":10,"minOffset":0}},"topicPutTps":0.0}',
    ),
    (b.ConsumeStats, CONSUME_STATS),
    (
        b.ConsumeStatsList,
        f'{{"brokerAddr":"10.0.0.1:10911","consumeStatsList":[{{"CG":[{CONSUME_STATS}]}}],"totalDiff":0,'
        '"totalInflightDiff":0}',
    ),
    (b.Connection, CONNECTION),
    (b.ProducerConnections, f'{{"connectionSet":[{CONNECTION}]}}'),
    (
        b.ConsumerConnections,
        f'{{"connectionSet":[{CONNECTION}],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":'
        f'"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":{{"T1":{SUBSCRIPTION}}}}}',
    ),
    (
        b.ProducerTable,
        '{"data":{"PG":[{"clientId":"c1","language":"JAVA","lastUpdateTimestamp":1700000000000,"remoteIP":'
        '"10.0.0.9:5000","version":401}]}}',
    ),
    (b.GroupConfig, GROUP),
    (
        b.RetryPolicy,
        '{"customizedRetryPolicy":{"next":[1000,5000]},"exponentialRetryPolicy":{"initial":5000,"max":7200000,'
        '"multiplier":2},"type":"EXPONENTIAL"}',
    ),
    (
        b.GroupConfig,
        GROUP.replace(
            '"whichBroker',
            '"subscriptionDataSet":[{"expression":"*","expressionType":"TAG","topic":"T1","version":1}],"whichBroker',
        ),
    ),
    (b.GroupTable, f'{{"dataVersion":{VERSION},"forbiddenTable":{{}},"subscriptionGroupTable":{{"CG":{GROUP}}}}}'),
    (b.GroupTable, f'{{"dataVersion":{VERSION},"forbiddenTable":{{"CG":{{"T1":1}}}},"subscriptionGroupTable":{{}}}}'),
    (b.GroupConfigList, f'{{"groupConfigList":[{GROUP}]}}'),
    (b.TopicConfigList, f'{{"topicConfigList":[{TOPIC}]}}'),
    (b.GroupForbidden, '{"group":"CG","readable":true,"topic":"T1"}'),
    (b.KVTable, '{"table":{"k":"v"}}'),
    (b.TopicList, '{"brokerAddr":"10.0.0.1:10911","topicList":["T1"]}'),
    (b.TopicList, '{"topicList":["T1"]}'),
    (b.GroupList, '{"groupList":["CG"]}'),
    (b.ResetOffsets, f'{{"offsetTable":{{{QUEUE_1}:6}}}}'),
    (b.ResetOffsetsForC, '{"offsetTable":[{"brokerName":"broker-a","offset":5,"queueId":0,"topic":"T1"}]}'),
    (b.ConsumerStatus, f'{{"consumerTable":{{}},"messageQueueTable":{{{QUEUE_1}:3}}}}'),
    (b.ConsumerStatus, f'{{"consumerTable":{{"c1":{{{QUEUE_1}:3}}}},"messageQueueTable":{{}}}}'),
    (b.RunningConsumer, RUNNING_CONSUMER),
    (b.RunningConsumer, RUNNING_CONSUMER.replace('{"mqPopTable"', '{"jstack":"main\\n\\tat x","mqPopTable"')),
    (
        b.RunningConsumer,
        RUNNING_CONSUMER.replace(
            '"mqPopTable":{}',
            f'"mqPopTable":{{{QUEUE_1}:{{"droped":true,"lastPopTimestamp":1700000000000,"waitAckCount":2}}}}',
        ),
    ),
    (
        b.DirectConsumption,
        '{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"remark":"…","spentTimeMills":0}',
    ),
    (
        b.TimeSpans,
        '{"consumeTimeSpanSet":[{"consumeTimeStamp":0,"delayTime":0,"maxTimeStamp":0,"messageQueue":'
        f'{QUEUE},"minTimeStamp":0}}]}}',
    ),
    (b.CorrectionOffsets, '{"correctionOffsets":{0:5}}'),
    (b.ConsumerOffsets, f'{{"dataVersion":{VERSION},"offsetTable":{{"T1@CG":{{0:5,1:9}}}}}}'),
    (b.ConsumerOffsets, '{"offsetTable":{"T1@CG":{0:5,1:9}}}'),
    (b.DelayOffsets, '{"offsetTable":{1:10,3:7}}'),
    (b.DelayOffsets, f'{{"dataVersion":{VERSION},"offsetTable":{{1:10,3:7}}}}'),
    (b.TimerCounts, f'{{"dataVersion":{VERSION},"timingCount":{{"T1":{{"count":3,"timeStamp":1700000000000}}}}}}'),
    (b.BrokerStats, f'{{"statsDay":{STATS_ITEM},"statsHour":{STATS_ITEM},"statsMinute":{STATS_ITEM}}}'),
    (
        b.QueueEntries,
        '{"filterData":"…","maxQueueIndex":10,"minQueueIndex":0,"queueData":[{"bitMap":"…","eval":false,'
        '"extendDataJson":"…","msg":"…","physicOffset":100,"physicSize":200,"tagsCode":-1}],"subscriptionData":'
        f"{SUBSCRIPTION}}}",
    ),
    (b.GroupSubscription, f'{{"group":"CG","subscriptionData":{SUBSCRIPTION},"topic":"T1"}}'),
    (
        b.AssignmentRequest,
        '{"clientId":"c1","consumerGroup":"CG","messageModel":"CLUSTERING","strategyName":"AVG","topic":"T1"}',
    ),
    (b.AssignmentAnswer, f'{{"messageQueueAssignments":[{{"messageQueue":{QUEUE},"mode":"PULL"}}]}}'),
    (b.GroupRequestMode, REQUEST_MODE),
    (b.RequestModeTable, f'{{"messageRequestModeMap":{{"T1":{{"CG":{REQUEST_MODE}}}}}}}'),
    (
        b.BatchAcks,
        '{"acks":[{"b":"CQI=","c":"CG","it":60000,"pt":1700000000000,"q":1,"r":"0","rq":3,"so":100,"t":"T1"}],'
        '"brokerName":"broker-a"}',
    ),
    (
        b.BrokerMembersAnswer,
        '{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"DefaultCluster"}}',
    ),
    (
        b.ReplicationState,
        '{"haClientRuntimeInfo":{"lastReadTimestamp":0,"lastWriteTimestamp":0,"masterFlushOffset":0,"maxOffset":0,'
        '"transferredByteInSecond":0},"haConnectionInfo":[{"addr":"10.0.0.2:5000","diff":0,"inSync":false,'
        '"slaveAckOffset":0,"transferFromWhere":0,"transferredByteInSecond":0}],"inSyncSlaveNums":1,"master":true,'
        '"masterCommitLogMaxOffset":100}',
    ),
    (b.User, '{"password":"p","userStatus":"enable","userType":"Normal","username":"u"}'),
    (
        b.Acl,
        '{"policies":[{"entries":[{"actions":["Pub","Sub"],"decision":"Allow","resource":"Topic:T1","sourceIps":'
        '["10.0.0.0/8"]}],"policyType":"Custom"}],"subject":"User:u"}',
    ),
    (
        b.Accounts,
        '{"globalWhiteAddrs":["10.0.0.*"],"plainAccessConfigs":[{"accessKey":"account1","admin":false,'
        '"defaultGroupPerm":"SUB","defaultTopicPerm":"DENY","groupPerms":["g=SUB"],"secretKey":"s","topicPerms":'
        '["T1=PUB|SUB"],"whiteRemoteAddress":""}]}',
    ),
    (b.SyncStateSet, '{"syncStateSet":[1,2],"syncStateSetEpoch":2}'),
    (
        b.ElectedMaster,
        '{"brokerMemberGroup":{"brokerAddrs":{1:"h:1",2:"h:2"},"brokerName":"g","cluster":"c"},"syncStateSet":[1]}',
    ),
    (b.ElectedMaster, '{"syncStateSet":[1,2]}'),
    (
        b.ReplicaTable,
        '{"replicasInfoTable":{"g":{"inSyncReplicas":[{"alive":true,"brokerAddress":"h:1","brokerId":1,"brokerName":"g"}],'
        '"masterAddress":"h:1","masterBrokerId":1,"masterEpoch":3,"notInSyncReplicas":[],"syncStateSetEpoch":7}}}',
    ),
    (
        b.BrokerEpochs,
        '{"brokerId":2,"brokerName":"g","clusterName":"c","epochList":[{"endOffset":9223372036854775807,"epoch":1,'
        '"startOffset":0}],"maxOffset":875}',
    ),
]
