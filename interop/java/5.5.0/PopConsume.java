import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A push consumer that leaves the sharing out to the broker, and pops where that says so.
 *
 * Its listener fails for a body that begins with "fail" and takes longer than the invisible time for one that begins
 * with "slow", when it sees them for the first time.
 */
public final class PopConsume {
    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group", "interop-poppers"));
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setInstanceName(options.text("instance", "one"));
        consumer.setClientRebalance(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPopInvisibleTime(options.number("invisibleMs", 60_000));
        consumer.subscribe(options.text("topic"), options.text("tags", "*"));
        consumer.registerMessageListener(new Printer(options.number("slowMs", 0)));
        consumer.start();
        Options.print("event", "started");
        Options.awaitStop();
        consumer.shutdown();
        Options.print("event", "done");
    }

    private static final class Printer implements MessageListenerConcurrently {
        private final int slowMs;

        Printer(int slowMs) {
            this.slowMs = slowMs;
        }

        @Override
        public ConsumeConcurrentlyStatus consumeMessage(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
            ConsumeConcurrentlyStatus status = ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                Options.print("event", "received", "body", body, "topic", message.getTopic(),
                    "times", message.getReconsumeTimes(), "at", System.currentTimeMillis());
                boolean isFirst = message.getReconsumeTimes() == 0;
                if (isFirst && body.startsWith("fail")) {
                    status = ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                if (isFirst && body.startsWith("slow")) {
                    pause();
                }
            }
            return status;
        }

        private void pause() {
            try {
                TimeUnit.MILLISECONDS.sleep(slowMs);
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
