import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** A push consumer that prints what it receives until told to stop. */
public final class Consume {
    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group", "interop-consumers"));
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setPollNameServerInterval(options.number("pollMs", 30_000));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setUseTLS(options.isSet("tls"));
        consumer.subscribe(options.text("topic"), options.text("tags", "*"));
        consumer.registerMessageListener(new Printer());
        consumer.start();
        Options.print("event", "started");
        Options.awaitStop();
        consumer.shutdown();
        Options.print("event", "done");
    }

    private static final class Printer implements MessageListenerConcurrently {
        @Override
        public ConsumeConcurrentlyStatus consumeMessage(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
            for (MessageExt message : messages) {
                Options.print("event", "received", "body", new String(message.getBody(), StandardCharsets.UTF_8),
                    "id", message.getMsgId(), "broker", context.getMessageQueue().getBrokerName(),
                    "queue", message.getQueueId(), "offset", message.getQueueOffset());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }
    }
}
