package org.apache.rocketmq.test.base;

import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.broker.topic.TopicConfigManager;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.header.GetMaxOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.GetMinOffsetRequestHeader;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.objenesis.ObjenesisStd;

/** A broker that runs elsewhere, as far as the tests look into one: what they ask of its inside is asked over the wire. */
final class Elsewhere extends BrokerController {
    private static final long TIMEOUT_MS = 5_000;
    private boolean isMade;
    private final Store store = new ObjenesisStd().newInstance(Store.class);

    Elsewhere(BrokerConfig config, NettyServerConfig listening) {
        super(config, listening, new NettyClientConfig(), new MessageStoreConfig());
        store.broker = this;
        isMade = true;
        getBrokerOuterAPI().updateNameServerAddressList(config.getNamesrvAddr());
        getBrokerOuterAPI().start();
    }

    @Override
    public MessageStore getMessageStore() {
        return store;
    }

    private long offset(int code, CommandCustomHeader header) {
        try {
            RemotingCommand request = RemotingCommand.createRequestCommand(code, header);
            RemotingCommand answer = getBrokerOuterAPI().getRemotingClient().invokeSync(getBrokerAddr(), request, TIMEOUT_MS);
            return Long.parseLong(answer.getExtFields().get("offset"));
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }

    @Override
    public ConsumerOffsetManager getConsumerOffsetManager() {
        if (!isMade) {
            return super.getConsumerOffsetManager();
        }
        return new ConsumerOffsetManager() {
            @Override
            public long queryOffset(String group, String topic, int queue) {
                try {
                    ConcurrentMap<Integer, Long> found = getBrokerOuterAPI().getAllConsumerOffset(getBrokerAddr())
                        .getOffsetTable().get(topic + "@" + group);
                    return found == null ? -1 : found.getOrDefault(queue, -1L);
                } catch (Exception problem) {
                    throw new IllegalStateException(problem);
                }
            }

            @Override
            public long queryPullOffset(String group, String topic, int queue) {
                return queryOffset(group, topic, queue);
            }
        };
    }

    @Override
    public TopicConfigManager getTopicConfigManager() {
        if (!isMade) {
            return super.getTopicConfigManager();
        }
        return new TopicConfigManager() {
            @Override
            public ConcurrentMap<String, TopicConfig> getTopicConfigTable() {
                try {
                    return new ConcurrentHashMap<>(getBrokerOuterAPI().getAllTopicConfig(getBrokerAddr()).getTopicConfigTable());
                } catch (Exception problem) {
                    throw new IllegalStateException(problem);
                }
            }
        };
    }

    /** Made without its constructor, which would open files. */
    static class Store extends DefaultMessageStore {
        Elsewhere broker;

        Store() throws java.io.IOException {
            super(null, null, null, null, null);
        }

        @Override
        public long dispatchBehindBytes() {
            return 0;
        }

        @Override
        public long getMaxOffsetInQueue(String topic, int queue) {
            GetMaxOffsetRequestHeader header = new GetMaxOffsetRequestHeader();
            header.setTopic(topic);
            header.setQueueId(queue);
            return broker.offset(RequestCode.GET_MAX_OFFSET, header);
        }

        @Override
        public long getMinOffsetInQueue(String topic, int queue) {
            GetMinOffsetRequestHeader header = new GetMinOffsetRequestHeader();
            header.setTopic(topic);
            header.setQueueId(queue);
            return broker.offset(RequestCode.GET_MIN_OFFSET, header);
        }
    }
}
