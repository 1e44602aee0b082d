import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** One producer: sends in every way there is, and asks for what was sent. */
final class Sending {
    private static final int WAIT_S = 30;
    private final DefaultMQProducer producer;
    private final List<Thread> loaders = new ArrayList<>();
    private volatile boolean isLoading;

    Sending(Options options) throws MQClientException {
        producer = new DefaultMQProducer(options.text("group", "agent-producers"));
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setInstanceName("producer-" + System.nanoTime());
        producer.setSendMsgTimeout(options.number("timeoutMs", 10_000));
        producer.setPollNameServerInterval(options.number("pollMs", 30_000));
        producer.setCompressMsgBodyOverHowmuch(options.number("compressOver", 4096));
        producer.setVipChannelEnabled(options.isSet("vip"));
        producer.start();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Letters to fill a body of this size. */
    private static String noise(int size) {
        StringBuilder letters = new StringBuilder(" ");
        new Random(size).ints(Math.max(0, size), 'a', 'z').forEach(letter -> letters.append((char) letter));
        return size > 0 ? letters.toString() : "";
    }

    private static void told(String body, SendResult result) {
        Options.print("event", "sent", "body", body.split(" ")[0], "status", result.getSendStatus(), "id", result.getMsgId(),
            "offsetId", result.getOffsetMsgId(), "broker", result.getMessageQueue().getBrokerName(),
            "queue", result.getMessageQueue().getQueueId(), "offset", result.getQueueOffset());
    }

    private static List<Message> messages(Options options) {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < options.number("count", 1); i++) {
            String start = options.text("prefix", "message") + "-" + i;
            byte[] body = bytes(start + noise(options.number("size", 0) - start.length()));
            String key = options.text("key", "key") + "-" + i;
            Message message = new Message(options.text("topic"), options.text("tag", ""), key, body);
            if (options.number("level", 0) > 0) {
                message.setDelayTimeLevel(options.number("level", 0));
            }
            messages.add(message);
        }
        return messages;
    }

    /** Sends `count` messages; how=sync, async, oneway, batch (all in one), ordered (number modulo queues). */
    Object send(Options options) throws Exception {
        List<Message> messages = messages(options);
        String how = options.text("how", "sync");
        CountDownLatch answers = new CountDownLatch(messages.size());
        AtomicInteger failures = new AtomicInteger();
        if (how.equals("batch")) {
            told(new String(messages.get(0).getBody(), StandardCharsets.UTF_8), producer.send(messages));
            return messages.size();
        }
        for (int i = 0; i < messages.size(); i++) {
            Message message = messages.get(i);
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            if (how.equals("sync")) {
                told(body, producer.send(message));
            } else if (how.equals("oneway")) {
                producer.sendOneway(message);
            } else if (how.equals("ordered")) {
                told(body, producer.send(message, (queues, ignored, number) -> queues.get((int) number % queues.size()), i));
            } else {
                producer.send(message, new Callback(body, answers, failures));
            }
        }
        if (how.equals("async") && !answers.await(WAIT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(answers.getCount() + " sends were never answered");
        }
        return messages.size() - failures.get();
    }

    private static final class Callback implements SendCallback {
        private final String body;
        private final CountDownLatch answers;
        private final AtomicInteger failures;

        Callback(String body, CountDownLatch answers, AtomicInteger failures) {
            this.body = body;
            this.answers = answers;
            this.failures = failures;
        }

        @Override
        public void onSuccess(SendResult result) {
            told(body, result);
            answers.countDown();
        }

        @Override
        public void onException(Throwable problem) {
            Options.print("event", "failed", "body", body, "problem", problem);
            failures.incrementAndGet();
            answers.countDown();
        }
    }

    /** One thread a queue sends number after number until told to end; what was acknowledged is said. */
    Object load(Options options) throws Exception {
        isLoading = true;
        int pause = options.number("pauseMs", 0);
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(options.text("topic"));
        for (MessageQueue queue : queues) {
            Thread thread = new Thread(() -> sendOn(queue, pause));
            loaders.add(thread);
            thread.start();
        }
        return queues.size();
    }

    private void sendOn(MessageQueue queue, int pauseMs) {
        for (int number = 0; isLoading; number++) {
            String body = queue.getQueueId() + "/" + number;
            try {
                SendResult result = producer.send(new Message(queue.getTopic(), "", "", bytes(body)), queue);
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    Options.print("event", "acknowledged", "body", body);
                }
                Thread.sleep(pauseMs);
            } catch (Exception problem) {
                Options.print("event", "refused", "body", body, "problem", problem);
                sleepAMoment();
            }
        }
    }

    private static void sleepAMoment() {
        try {
            Thread.sleep(50);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    Object endLoad() throws InterruptedException {
        isLoading = false;
        for (Thread thread : loaders) {
            thread.join();
        }
        loaders.clear();
        return "";
    }

    /** A message by its id: the broker's or the client's. */
    Object view(Options options) throws Exception {
        return Consuming.tell("view", producer.viewMessage(options.text("topic"), options.text("id")));
    }

    Object query(Options options) throws Exception {
        long now = System.currentTimeMillis();
        List<MessageExt> found = producer.queryMessage(options.text("topic"), options.text("key"),
            options.number("max", 32), now - 3_600_000, now + 3_600_000).getMessageList();
        found.forEach(message -> Consuming.tell("query", message));
        return found.size();
    }

    /** which=min, max or the first at or after a time in milliseconds. */
    Object offset(Options options) throws Exception {
        for (MessageQueue queue : producer.fetchPublishMessageQueues(options.text("topic"))) {
            if (queue.getQueueId() == options.number("queue", 0)) {
                String which = options.text("which");
                return which.equals("min") ? producer.minOffset(queue)
                    : which.equals("max") ? producer.maxOffset(queue)
                    : producer.searchOffset(queue, Long.parseLong(which));
            }
        }
        throw new IllegalArgumentException("no such queue");
    }
}
