import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers of every kind, each under a name of its own; what one receives is said in a line. */
final class Consuming {
    private static final int SUSPEND_MS = 100;
    private final Options ours;
    private final Map<String, DefaultMQPushConsumer> pushes = new HashMap<>();
    private final Map<String, DefaultLitePullConsumer> lites = new HashMap<>();
    private final Map<String, DefaultMQPullConsumer> pulls = new HashMap<>();

    Consuming(Options ours) {
        this.ours = ours;
    }

    static Object tell(String consumer, MessageExt message) {
        String body = new String(message.getBody(), StandardCharsets.UTF_8).split(" ")[0];
        Options.print("event", "received", "consumer", consumer, "body", body, "tags", message.getTags(),
            "keys", message.getKeys(), "id", message.getMsgId(), "broker", message.getBrokerName(),
            "queue", message.getQueueId(), "offset", message.getQueueOffset(), "topic", message.getTopic(),
            "times", message.getReconsumeTimes());
        return body;
    }

    /** from=first, last or timestamp with when=yyyyMMddHHmmss; orderly, broadcast and pop are switches. */
    Object push(Options options) throws Exception {
        String name = options.text("name");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group"));
        consumer.setNamesrvAddr(ours.text("namesrv"));
        consumer.setInstanceName(name + "-" + System.nanoTime());
        consumer.setVipChannelEnabled(ours.isSet("vip"));
        consumer.setPollNameServerInterval(ours.number("pollMs", 30_000));
        consumer.setHeartbeatBrokerInterval(ours.number("heartbeatMs", 30_000));
        consumer.setPersistConsumerOffsetInterval(options.number("commitMs", 1_000));
        consumer.setConsumeFromWhere(
            ConsumeFromWhere.valueOf("CONSUME_FROM_" + options.text("from", "first_offset").toUpperCase()));
        if (!options.text("when", "").isEmpty()) {
            consumer.setConsumeTimestamp(options.text("when"));
        }
        if (options.isSet("broadcast")) {
            var models = consumer.getMessageModel().getDeclaringClass();
            consumer.setMessageModel(Enum.valueOf(models, "BROADCASTING"));
        }
        if (options.isSet("pop")) {
            // 4.9 has no such switch: it is found by its name, so that this compiles for both.
            Method serverDivides = DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class);
            serverDivides.invoke(consumer, false);
        }
        if (options.text("sql", "").isEmpty()) {
            consumer.subscribe(options.text("topic"), options.text("tags", "*"));
        } else {
            consumer.subscribe(options.text("topic"), MessageSelector.bySql(options.text("sql")));
        }
        if (options.number("maxTimes", -1) >= 0) {
            consumer.setMaxReconsumeTimes(options.number("maxTimes", -1));
        }
        if (!options.text("bad", "").isEmpty()) {
            refuseAlways(consumer, name, options);
            consumer.start();
            pushes.put(name, consumer);
            return "";
        }
        int failEvery = options.number("failEvery", 0);
        int pauseMs = options.number("pauseMs", 0);
        if (options.isSet("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) new Failing(name, failEvery, pauseMs)::consume);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(message -> tell(name, message));
                sleep(pauseMs);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        pushes.put(name, consumer);
        return "";
    }

    /** Refuses every message whose body begins with bad=; later or throw=true says how, level= after which delay. */
    private static void refuseAlways(DefaultMQPushConsumer consumer, String name, Options options) {
        String bad = options.text("bad");
        boolean throwing = options.isSet("throw");
        int level = options.number("level", 0);
        if (options.isSet("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                boolean refused = false;
                for (MessageExt message : messages) {
                    refused |= String.valueOf(tell(name, message)).startsWith(bad);
                }
                context.setSuspendCurrentQueueTimeMillis(SUSPEND_MS);
                return refused ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
            return;
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(level);
            for (MessageExt message : messages) {
                if (String.valueOf(tell(name, message)).startsWith(bad)) {
                    if (throwing) {
                        throw new IllegalStateException("not today");
                    }
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    }

    /** Refuses every so manieth message of a queue once, and takes it when it comes again. */
    private static final class Failing {
        private final String name;
        private final int failEvery;
        private final int pauseMs;
        private final Set<String> refused = ConcurrentHashMap.newKeySet();

        Failing(String name, int failEvery, int pauseMs) {
            this.name = name;
            this.failEvery = failEvery;
            this.pauseMs = pauseMs;
        }

        ConsumeOrderlyStatus consume(List<MessageExt> messages, ConsumeOrderlyContext context) {
            sleep(pauseMs);
            for (MessageExt message : messages) {
                String place = message.getQueueId() + "/" + message.getQueueOffset();
                if (failEvery > 0 && message.getQueueOffset() % failEvery == 0 && refused.add(place)) {
                    Options.print("event", "refused", "consumer", name, "place", place);
                    context.setSuspendCurrentQueueTimeMillis(SUSPEND_MS);
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                tell(name, message);
            }
            return ConsumeOrderlyStatus.SUCCESS;
        }
    }

    private static void sleep(int pauseMs) {
        try {
            Thread.sleep(pauseMs);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    /** The queues of the topic that a push consumer holds now: "broker:0,broker:1". */
    Object assigned(Options options) {
        Set<MessageQueue> held = pushes.get(options.text("name")).getDefaultMQPushConsumerImpl().getRebalanceImpl()
            .getProcessQueueTable().keySet();
        return held.stream().filter(queue -> queue.getTopic().equals(options.text("topic")))
            .map(queue -> queue.getBrokerName() + ":" + queue.getQueueId()).sorted().collect(Collectors.joining(","));
    }

    /** A lite pull consumer: it subscribes, or with assign=true takes all queues itself. */
    Object lite(Options options) throws Exception {
        String name = options.text("name");
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(options.text("group"));
        consumer.setNamesrvAddr(ours.text("namesrv"));
        consumer.setInstanceName(name + "-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        if (!options.text("sql", "").isEmpty()) {
            consumer.subscribe(options.text("topic"), MessageSelector.bySql(options.text("sql")));
        } else if (!options.isSet("assign")) {
            consumer.subscribe(options.text("topic"), options.text("tags", "*"));
        }
        consumer.start();
        if (options.isSet("assign")) {
            consumer.assign(consumer.fetchMessageQueues(options.text("topic")));
        }
        lites.put(name, consumer);
        return "";
    }

    /** Polls until `count` came or the time is over, then commits. */
    Object poll(Options options) throws Exception {
        String name = options.text("name");
        DefaultLitePullConsumer consumer = lites.get(name);
        int wanted = options.number("count", 1);
        int got = 0;
        long deadline = System.currentTimeMillis() + options.number("limitMs", 20_000);
        while (got < wanted && System.currentTimeMillis() < deadline) {
            List<MessageExt> messages = consumer.poll(500);
            messages.forEach(message -> tell(name, message));
            got += messages.size();
        }
        consumer.commitSync();
        return got;
    }

    Object seek(Options options) throws Exception {
        DefaultLitePullConsumer consumer = lites.get(options.text("name"));
        for (MessageQueue queue : consumer.fetchMessageQueues(options.text("topic"))) {
            consumer.seek(queue, options.number("offset", 0));
        }
        return "";
    }

    /** One pull of one queue, under the old interface; the answer is its status and the next offset. */
    Object pull(Options options) throws Exception {
        String group = options.text("group");
        if (!pulls.containsKey(group)) {
            DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
            consumer.setNamesrvAddr(ours.text("namesrv"));
            consumer.setInstanceName(group + "-" + System.nanoTime());
            consumer.start();
            pulls.put(group, consumer);
        }
        DefaultMQPullConsumer consumer = pulls.get(group);
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(options.text("topic"))) {
            if (queue.getQueueId() == options.number("queue", 0)) {
                String tags = options.text("tags", "*");
                int offset = options.number("offset", 0);
                int max = options.number("max", 32);
                PullResult result = options.isSet("block") ? consumer.pullBlockIfNotFound(queue, tags, offset, max)
                    : consumer.pull(queue, tags, offset, max);
                if (result.getMsgFoundList() != null) {
                    result.getMsgFoundList().forEach(message -> tell(group, message));
                }
                consumer.updateConsumeOffset(queue, result.getNextBeginOffset());
                return result.getPullStatus() + " " + result.getNextBeginOffset();
            }
        }
        throw new IllegalArgumentException("no such queue");
    }

    Object stop(Options options) {
        String name = options.text("name");
        if (pushes.containsKey(name)) {
            pushes.remove(name).shutdown();
        } else if (lites.containsKey(name)) {
            lites.remove(name).shutdown();
        } else {
            pulls.remove(name).shutdown();
        }
        return "";
    }
}
