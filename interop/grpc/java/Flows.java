import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Callable;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.RecallReceipt;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** What RocketMQ's Java client does over gRPC; each claim that held or did not is a line of JSON. */
public class Flows {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static ClientConfiguration config;

    public static void main(String[] arguments) throws Exception {
        ClientConfigurationBuilder configured = ClientConfiguration.newBuilder().setEndpoints(arguments[0])
            .enableSsl(!arguments[1].equals("plain")).setRequestTimeout(Duration.ofSeconds(10));
        if (arguments.length > 4) {
            configured.setCredentialProvider(new StaticSessionCredentialsProvider(arguments[3], arguments[4]));
        }
        config = configured.build();
        if (arguments.length > 2) {
            guarded(arguments[2]);
            System.out.println("{\"event\":\"done\"}");
            System.exit(0);
        }
        claim("simple", Flows::simple);
        ExecutorService flows = Executors.newCachedThreadPool();
        flows.submit(() -> claim("filters", Flows::filters));
        flows.submit(() -> claim("push with a failure", Flows::push));
        flows.submit(() -> claim("order per message group with failures", Flows::fifo));
        flows.submit(() -> claim("delay and recall", Flows::delay));
        flows.submit(() -> claim("transactions", Flows::transactions));
        flows.submit(() -> claim("orphaned transaction", Flows::orphan));
        flows.submit(() -> claim("dead letter", Flows::deadLetter));
        flows.submit(() -> claim("two members share", Flows::shared));
        flows.submit(() -> claim("refusals", Flows::refusals));
        flows.submit(() -> claim("large", Flows::large));
        flows.shutdown();
        flows.awaitTermination(5, TimeUnit.MINUTES);
        System.out.println("{\"event\":\"done\"}");
        System.exit(0);
    }

    static void claim(String name, Callable<String> flow) {
        String found;
        long began = System.currentTimeMillis();
        try {
            found = flow.call();
        } catch (Throwable problem) {
            problem.printStackTrace();
            found = root(problem).toString();
        }
        System.out.println("{\"event\":\"claim\",\"name\":\"" + name + "\",\"found\":\"" + found.replace("\"", "'").replace("\n", " ")
            + "\",\"ms\":" + (System.currentTimeMillis() - began) + "}");
    }

    static Producer producer(String... topics) throws ClientException {
        return PROVIDER.newProducerBuilder().setClientConfiguration(config).setTopics(topics).build();
    }

    static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    static SimpleConsumer simple(String group, String topic, FilterExpression wanted) throws ClientException {
        return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(config).setConsumerGroup(group)
            .setAwaitDuration(Duration.ofSeconds(10)).setSubscriptionExpressions(Map.of(topic, wanted)).build();
    }

    static String body(MessageView message) {
        ByteBuffer bytes = message.getBody().duplicate();
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        return new String(copy, StandardCharsets.UTF_8);
    }

    static List<String> drain(SimpleConsumer consumer, int count, int limitS) throws Exception {
        List<String> found = new ArrayList<>();
        long until = System.currentTimeMillis() + limitS * 1000L;
        while (found.size() < count && System.currentTimeMillis() < until) {
            for (MessageView each : consumer.receive(16, Duration.ofSeconds(20))) {
                found.add(body(each));
                consumer.ack(each);
            }
        }
        Collections.sort(found);
        return found;
    }

    static String simple() throws Exception {
        try (Producer producer = producer("JNormal"); SimpleConsumer consumer = simple("j-simple", "JNormal", FilterExpression.SUB_ALL)) {
            SendReceipt sent = producer.send(message("JNormal", "one").setTag("A").setKeys("k1", "k2").addProperty("colour", "red").build());
            List<MessageView> got = consumer.receive(1, Duration.ofSeconds(15));
            MessageView first = got.get(0);
            boolean same = first.getMessageId().equals(sent.getMessageId()) && first.getTag().get().equals("A")
                && first.getProperties().get("colour").equals("red") && first.getKeys().size() == 2 && first.getDeliveryAttempt() == 1;
            consumer.changeInvisibleDuration(first, Duration.ofSeconds(30));
            consumer.ack(first);
            long began = System.currentTimeMillis();
            new Thread(() -> {
                try {
                    Thread.sleep(500);
                    producer.send(message("JNormal", "wake").build());
                } catch (Exception problem) {
                    problem.printStackTrace();
                }
            }).start();
            List<String> woken = drain(consumer, 1, 20);
            boolean quick = System.currentTimeMillis() - began < 5000;
            return same && quick && woken.equals(List.of("wake")) ? "ok" : "same=" + same + " quick=" + quick + " " + woken;
        }
    }

    static String filters() throws Exception {
        try (Producer producer = producer("JFilter");
             SimpleConsumer tags = simple("j-tags", "JFilter", new FilterExpression("A || C", FilterExpressionType.TAG));
             SimpleConsumer sql = simple("j-sql", "JFilter", new FilterExpression("price > 10", FilterExpressionType.SQL92))) {
            for (String each : List.of("A:5", "B:15", "C:25")) {
                String[] parts = each.split(":");
                producer.send(message("JFilter", parts[0]).setTag(parts[0]).addProperty("price", parts[1]).build());
            }
            List<String> byTag = drain(tags, 2, 20);
            List<String> bySql = drain(sql, 2, 20);
            return byTag.equals(List.of("A", "C")) && bySql.equals(List.of("B", "C")) ? "ok" : byTag + " " + bySql;
        }
    }

    static void until(Callable<Boolean> condition, int limitS) throws Exception {
        long until = System.currentTimeMillis() + limitS * 1000L;
        while (!condition.call() && System.currentTimeMillis() < until) {
            Thread.sleep(20);
        }
    }

    static String push() throws Exception {
        List<String> seen = new CopyOnWriteArrayList<>();
        try (Producer producer = producer("JPush");
             PushConsumer consumer = PROVIDER.newPushConsumerBuilder().setClientConfiguration(config).setConsumerGroup("j-push")
                 .setSubscriptionExpressions(Map.of("JPush", FilterExpression.SUB_ALL))
                 .setMessageListener(message -> {
                     seen.add(body(message) + "#" + message.getDeliveryAttempt());
                     return body(message).equals("bad") && message.getDeliveryAttempt() < 2 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
                 }).build()) {
            for (int i = 0; i < 20; i++) {
                producer.send(message("JPush", "m" + i).build());
            }
            producer.send(message("JPush", "bad").build());
            until(() -> seen.contains("bad#2") && seen.size() >= 22, 60);
            return seen.contains("bad#1") && seen.contains("bad#2") && seen.size() == 22 ? "ok" : seen.toString();
        }
    }

    static String fifo() throws Exception {
        Map<String, List<String>> done = new ConcurrentHashMap<>();
        AtomicInteger failures = new AtomicInteger();
        try (Producer producer = producer("JFifo")) {
            PushConsumer consumer = PROVIDER.newPushConsumerBuilder().setClientConfiguration(config).setConsumerGroup("j-fifo")
                .setSubscriptionExpressions(Map.of("JFifo", FilterExpression.SUB_ALL))
                .setMessageListener(message -> {
                    String text = body(message);
                    if (text.endsWith(".3") && message.getDeliveryAttempt() == 1 && failures.incrementAndGet() > 0) {
                        return ConsumeResult.FAILURE;
                    }
                    done.computeIfAbsent(message.getMessageGroup().get(), each -> new CopyOnWriteArrayList<>()).add(text);
                    return ConsumeResult.SUCCESS;
                }).build();
            for (int i = 0; i < 8; i++) {
                for (String group : List.of("g1", "g2", "g3")) {
                    producer.send(message("JFifo", group + "." + i).setMessageGroup(group).build());
                }
            }
            until(() -> done.values().stream().mapToInt(List::size).sum() >= 24, 90);
            consumer.close();
        }
        for (String group : List.of("g1", "g2", "g3")) {
            List<String> wanted = new ArrayList<>();
            for (int i = 0; i < 8; i++) {
                wanted.add(group + "." + i);
            }
            if (!wanted.equals(done.get(group))) {
                return done.toString();
            }
        }
        return failures.get() >= 3 ? "ok" : "failures " + failures;
    }

    static String delay() throws Exception {
        try (Producer producer = producer("JDelay"); SimpleConsumer consumer = simple("j-delay", "JDelay", FilterExpression.SUB_ALL)) {
            long due = System.currentTimeMillis() + 4000;
            producer.send(message("JDelay", "later").setDeliveryTimestamp(due).build());
            SendReceipt taken = producer.send(message("JDelay", "taken").setDeliveryTimestamp(due).build());
            RecallReceipt recalled = producer.recallMessage("JDelay", taken.getRecallHandle());
            List<String> got = drain(consumer, 1, 20);
            boolean late = System.currentTimeMillis() >= due;
            List<String> more = drain(consumer, 1, 8);
            boolean named = recalled.getMessageId().toString().equals(taken.getMessageId().toString());
            return late && named && got.equals(List.of("later")) && more.isEmpty() ? "ok" : late + " " + named + " " + got + more;
        }
    }

    static String transactions() throws Exception {
        try (Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(config).setTopics("JTransaction")
                 .setTransactionChecker(message -> TransactionResolution.COMMIT).build();
             SimpleConsumer consumer = simple("j-transaction", "JTransaction", FilterExpression.SUB_ALL)) {
            Transaction kept = producer.beginTransaction();
            producer.send(message("JTransaction", "kept").build(), kept);
            kept.commit();
            Transaction dropped = producer.beginTransaction();
            producer.send(message("JTransaction", "dropped").build(), dropped);
            dropped.rollback();
            producer.send(message("JTransaction", "forgotten").build(), producer.beginTransaction());
            List<String> got = drain(consumer, 2, 60);
            return got.equals(List.of("forgotten", "kept")) ? "ok" : got.toString();
        }
    }

    static String orphan() throws Exception {
        Producer dead = PROVIDER.newProducerBuilder().setClientConfiguration(config).setTopics("JOrphan")
            .setTransactionChecker(message -> TransactionResolution.UNKNOWN).build();
        dead.send(message("JOrphan", "orphan").build(), dead.beginTransaction());
        dead.close();
        try (Producer other = PROVIDER.newProducerBuilder().setClientConfiguration(config).setTopics("JOrphan")
                 .setTransactionChecker(message -> TransactionResolution.COMMIT).build();
             SimpleConsumer consumer = simple("j-orphan", "JOrphan", FilterExpression.SUB_ALL)) {
            List<String> got = drain(consumer, 1, 60);
            return got.equals(List.of("orphan")) ? "ok" : got.toString();
        }
    }

    static String deadLetter() throws Exception {
        AtomicInteger tries = new AtomicInteger();
        try (Producer producer = producer("JDead");
             PushConsumer consumer = PROVIDER.newPushConsumerBuilder().setClientConfiguration(config).setConsumerGroup("j-dead")
                 .setSubscriptionExpressions(Map.of("JDead", FilterExpression.SUB_ALL))
                 .setMessageListener(message -> {
                     tries.incrementAndGet();
                     return ConsumeResult.FAILURE;
                 }).build()) {
            producer.send(message("JDead", "hopeless").build());
            // The topic is there with its first message, and until then nobody can subscribe to it.
            for (int i = 0; i < 60; i++) {
                try (SimpleConsumer dead = simple("j-undertaker", "%DLQ%j-dead", FilterExpression.SUB_ALL)) {
                    List<String> got = drain(dead, 1, 30);
                    return got.equals(List.of("hopeless")) && tries.get() == 2 ? "ok" : got + " after " + tries;
                } catch (IllegalStateException absent) {
                    Thread.sleep(1000);
                }
            }
            return "no dead letter after " + tries;
        }
    }

    static String shared() throws Exception {
        Map<String, AtomicInteger> counts = new ConcurrentHashMap<>();
        List<PushConsumer> members = new ArrayList<>();
        for (String name : List.of("one", "two")) {
            counts.put(name, new AtomicInteger());
            members.add(PROVIDER.newPushConsumerBuilder().setClientConfiguration(config).setConsumerGroup("j-shared").setConsumptionThreadCount(2)
                .setSubscriptionExpressions(Map.of("JShared", FilterExpression.SUB_ALL))
                .setMessageListener(message -> {
                    counts.get(name).incrementAndGet();
                    return ConsumeResult.SUCCESS;
                }).build());
        }
        try (Producer producer = producer("JShared")) {
            for (int i = 0; i < 200; i++) {
                producer.send(message("JShared", "m" + i).build());
            }
            until(() -> counts.get("one").get() + counts.get("two").get() >= 200, 60);
        }
        for (PushConsumer each : members) {
            each.close();
        }
        boolean both = counts.get("one").get() > 0 && counts.get("two").get() > 0;
        return both && counts.get("one").get() + counts.get("two").get() == 200 ? "ok" : counts.toString();
    }

    static String refused(Callable<?> call) {
        try {
            call.call();
            return "nothing";
        } catch (Throwable problem) {
            return root(problem).getClass().getSimpleName();
        }
    }

    static Throwable root(Throwable problem) {
        while (problem.getCause() != null) {
            problem = problem.getCause();
        }
        return problem;
    }

    static String refusals() throws Exception {
        try (Producer producer = producer("JNormal")) {
            String type = refused(() -> producer.send(message("JNormal", "x").setMessageGroup("g").build()));
            String size = refused(() -> producer.send(message("JNormal", "x".repeat(5 << 20)).build()));
            String topic = refused(() -> producer.send(message("JMissing", "x").build()));
            String found = type + " " + size + " " + topic;
            return found.equals("IllegalArgumentException IOException NotFoundException") ? "ok" : found;
        }
    }

    /** What one with these keys, or without any, may do with a topic and a group of its name. */
    static void guarded(String topic) {
        claim("send", () -> {
            try (Producer producer = producer(topic)) {
                producer.send(message(topic, "guarded").build());
                return "ok";
            }
        });
        claim("receive", () -> {
            try (SimpleConsumer consumer = simple(topic + "-cg", topic, FilterExpression.SUB_ALL)) {
                return drain(consumer, 1, 20).equals(List.of("guarded")) ? "ok" : "nothing";
            }
        });
    }

    static String large() throws Exception {
        try (Producer producer = producer("JLarge"); SimpleConsumer consumer = simple("j-large", "JLarge", FilterExpression.SUB_ALL)) {
            String text = "z".repeat(4 << 20);
            producer.send(message("JLarge", text).build());
            List<String> got = drain(consumer, 1, 30);
            return got.equals(List.of(text)) ? "ok" : "another of " + got.size();
        }
    }
}
