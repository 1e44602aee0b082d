package org.apache.rocketmq.test.base;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.attribute.TopicMessageType;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.test.util.MQAdminTestUtils;

/**
 * Takes the place of the released class of this name, which starts servers inside the JVM: here they run elsewhere.
 *
 * -Dexamined.namesrv=PORT -Dexamined.brokers=NAME@PORT,NAME@PORT,NAME@PORT, all of the cluster DefaultCluster.
 */
public class IntegrationTestBase {
    private static final int TOPIC_LIMIT_S = 15;
    private static final Iterator<String> BROKERS =
        Arrays.asList(System.getProperty("examined.brokers").split(",")).iterator();

    public static NamesrvController createAndStartNamesrv() {
        NettyServerConfig listening = new NettyServerConfig();
        listening.setListenPort(Integer.getInteger("examined.namesrv"));
        return new NamesrvController(new NamesrvConfig(), listening);
    }

    public static BrokerController createAndStartBroker(String nameServers) {
        String[] nameAndPort = BROKERS.next().split("@");
        BrokerConfig config = new BrokerConfig();
        config.setBrokerName(nameAndPort[0]);
        config.setBrokerIP1("127.0.0.1");
        config.setNamesrvAddr(nameServers);
        NettyServerConfig listening = new NettyServerConfig();
        listening.setListenPort(Integer.parseInt(nameAndPort[1]));
        return new Elsewhere(config, listening);
    }

    public static boolean initTopic(String topic, String nameServers, String cluster, int queues, CQType kind) {
        return initTopic(topic, nameServers, cluster, queues, kind, TopicMessageType.NORMAL);
    }

    public static boolean initTopic(String topic, String nameServers, String cluster, int queues, CQType kind,
        TopicMessageType type) {
        Map<String, String> attributes = new HashMap<>();
        attributes.put("+queue.type", kind.toString());
        attributes.put("+message.type", type.getValue());
        if (!MQAdminTestUtils.createTopic(nameServers, cluster, topic, queues, attributes, TOPIC_LIMIT_S)) {
            throw new IllegalStateException("topic " + topic + " was not made");
        }
        return true;
    }

    public static boolean initTopic(String topic, String nameServers, String cluster, CQType kind) {
        return initTopic(topic, nameServers, cluster, 8, kind);
    }

    public static boolean initTopic(String topic, String nameServers, String cluster, TopicMessageType type) {
        return initTopic(topic, nameServers, cluster, 8, CQType.SimpleCQ, type);
    }

    public static void initMQAdmin(String nameServers) throws Exception {
        MQAdminTestUtils.startAdmin(nameServers);
    }
}
