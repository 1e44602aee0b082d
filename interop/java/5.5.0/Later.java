import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends messages for later, one in each of the client's ways to say when, and takes one of them back.
 *
 * A line is printed for each: "sent" with when it is due, "recalled" with what the broker answered, twice, for to take
 * back what is gone already does no harm; and "refused" for a recall of what is in another topic, or delivered.
 */
public final class Later {
    private static final int DELAY_S = 3;
    private final DefaultMQProducer producer;
    private final String topic;

    private Later(Options options) throws Exception {
        topic = options.text("topic");
        producer = new DefaultMQProducer(options.text("group", "interop-later"));
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.start();
    }

    public static void main(String[] arguments) throws Exception {
        new Later(new Options(arguments)).run();
    }

    private void run() throws Exception {
        Message byMillis = message("delayMs");
        byMillis.setDelayTimeMs(TimeUnit.SECONDS.toMillis(DELAY_S));
        send(byMillis);
        Message bySeconds = message("delaySec");
        bySeconds.setDelayTimeSec(DELAY_S);
        send(bySeconds);
        Message atTime = message("deliverMs");
        atTime.setDeliverTimeMs(System.currentTimeMillis() + TimeUnit.SECONDS.toMillis(DELAY_S));
        send(atTime);
        Message gone = message("gone");
        gone.setDelayTimeMs(TimeUnit.SECONDS.toMillis(DELAY_S));
        String handle = send(gone).getRecallHandle();
        recall(topic + "Not", handle);
        recall(topic, handle);
        recall(topic, handle);
        Message early = message("early");
        early.setDelayTimeMs(TimeUnit.SECONDS.toMillis(1));
        String late = send(early).getRecallHandle();
        TimeUnit.SECONDS.sleep(DELAY_S);
        recall(topic, late);
        producer.shutdown();
        Options.print("event", "done");
    }

    private Message message(String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    private SendResult send(Message message) throws Exception {
        boolean isByMillis = message.getProperty("TIMER_DELAY_MS") != null;
        long delayMs = isByMillis ? message.getDelayTimeMs() : TimeUnit.SECONDS.toMillis(DELAY_S);
        long dueMs = System.currentTimeMillis() + delayMs;
        SendResult result = producer.send(message);
        Options.print("event", "sent", "body", new String(message.getBody(), StandardCharsets.UTF_8), "due", dueMs,
            "id", result.getMsgId(), "status", result.getSendStatus(), "handle", result.getRecallHandle());
        return result;
    }

    private void recall(String from, String handle) {
        try {
            Options.print("event", "recalled", "topic", from, "id", producer.recallMessage(from, handle));
        } catch (Exception problem) {
            Options.print("event", "refused", "topic", from, "problem", problem);
        }
    }
}
