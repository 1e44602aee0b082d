import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** A push consumer that prints what it receives until told to stop. */
public final class Consume {
    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            options.text("group", "interop-consumers"), options.signer(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setPollNameServerInterval(options.number("pollMs", 30_000));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setUseTLS(options.isSet("tls"));
        consumer.subscribe(options.text("topic"), options.text("tags", "*"));
        if (options.isSet("broadcast")) {
            broadcast(consumer);
        }
        if (options.isSet("orderly")) {
            consumer.registerMessageListener(new OrderlyPrinter());
        } else {
            consumer.registerMessageListener(new Printer());
        }
        consumer.start();
        Options.print("event", "started");
        Options.awaitStop();
        consumer.shutdown();
        Options.print("event", "done");
    }

    /** The enum lies in another package in each release, so it cannot be imported. */
    private static void broadcast(DefaultMQPushConsumer consumer) throws Exception {
        for (Object model : consumer.getMessageModel().getClass().getEnumConstants()) {
            if ("BROADCASTING".equals(model.toString())) {
                DefaultMQPushConsumer.class.getMethod("setMessageModel", model.getClass()).invoke(consumer, model);
            }
        }
    }

    private static final class Printer implements MessageListenerConcurrently {
        @Override
        public ConsumeConcurrentlyStatus consumeMessage(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
            print(messages, context.getMessageQueue());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }
    }

    private static final class OrderlyPrinter implements MessageListenerOrderly {
        @Override
        public ConsumeOrderlyStatus consumeMessage(List<MessageExt> messages, ConsumeOrderlyContext context) {
            print(messages, context.getMessageQueue());
            return ConsumeOrderlyStatus.SUCCESS;
        }
    }

    private static void print(List<MessageExt> messages, MessageQueue queue) {
        for (MessageExt message : messages) {
            Options.print("event", "received", "body", new String(message.getBody(), StandardCharsets.UTF_8),
                "id", message.getMsgId(), "broker", queue.getBrokerName(), "queue", message.getQueueId(),
                "offset", message.getQueueOffset(), "ms", System.currentTimeMillis());
        }
    }
}
