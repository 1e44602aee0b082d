import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Requests and replies, and clients that trace what they do. */
final class Asking {
    private final Options ours;
    private final Map<String, DefaultMQPushConsumer> consumers = new HashMap<>();
    private final Map<String, DefaultMQProducer> repliers = new HashMap<>();
    private DefaultMQProducer asker;

    Asking(Options ours) {
        this.ours = ours;
    }

    private static String text(byte[] body) {
        return new String(body, StandardCharsets.UTF_8);
    }

    private DefaultMQProducer started(DefaultMQProducer producer, String name) throws Exception {
        producer.setNamesrvAddr(ours.text("namesrv"));
        producer.setInstanceName(name + "-" + System.nanoTime());
        producer.setSendMsgTimeout(10_000);
        producer.start();
        return producer;
    }

    private DefaultMQPushConsumer subscribed(DefaultMQPushConsumer consumer, Options options) throws Exception {
        consumer.setNamesrvAddr(ours.text("namesrv"));
        consumer.setInstanceName(options.text("name") + "-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.text("topic"), options.text("tags", "*"));
        consumers.put(options.text("name"), consumer);
        return consumer;
    }

    /** Sends a request and gives the body of the reply; size fills the body. */
    Object ask(Options options) throws Exception {
        if (asker == null) {
            asker = started(new DefaultMQProducer("java-askers"), "asker");
        }
        byte[] body = options.text("body").getBytes(StandardCharsets.UTF_8);
        Message reply = asker.request(new Message(options.text("topic"), body), options.number("timeoutMs", 15_000));
        return text(reply.getBody());
    }

    /** A consumer that replies to every request in capitals. */
    Object answer(Options options) throws Exception {
        String name = options.text("name");
        DefaultMQProducer replier = started(new DefaultMQProducer("java-repliers-" + name), name);
        repliers.put(name, replier);
        DefaultMQPushConsumer consumer = subscribed(new DefaultMQPushConsumer(options.text("group")), options);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    byte[] body = text(message.getBody()).toUpperCase().getBytes(StandardCharsets.UTF_8);
                    SendResult sent = replier.send(MessageUtil.createReplyMessage(message, body), 10_000);
                    Options.print("event", "replied", "consumer", name, "status", sent.getSendStatus());
                } catch (Exception problem) {
                    Options.print("event", "unreplied", "consumer", name, "problem", problem);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return "";
    }

    /** Sends one message and tells of it in the trace topic; gives its id. */
    Object tracedSend(Options options) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(options.text("group"), null, true, options.text("trace"));
        started(producer, options.text("group"));
        Message message = new Message(options.text("topic"), options.text("tag", ""), options.text("key"),
            options.text("body").getBytes(StandardCharsets.UTF_8));
        String id = producer.send(message).getMsgId();
        repliers.put(options.text("group"), producer);
        return id;
    }

    /** A consumer that tells what it received in a line, and of each in the trace topic. */
    Object tracedPush(Options options) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group"), null,
            new AllocateMessageQueueAveragely(), true, options.text("trace"));
        subscribed(consumer, options);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> Consuming.tell(options.text("name"), message));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return "";
    }

    /** Ends a consumer, or a producer, that was started here. */
    Object quit(Options options) {
        DefaultMQPushConsumer consumer = consumers.remove(options.text("name"));
        if (consumer != null) {
            consumer.shutdown();
        }
        DefaultMQProducer producer = repliers.remove(options.text("name"));
        if (producer != null) {
            producer.shutdown();
        }
        return "";
    }
}
