import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Sends count messages, or with count=0 one every intervalMs until told to stop; prints what became of each. */
public final class Produce {
    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        DefaultMQProducer producer = 
            new DefaultMQProducer(options.text("group", "interop-producers"), options.signer());
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setPollNameServerInterval(options.number("pollMs", 30_000));
        producer.setSendMsgTimeout(options.number("timeoutMs", 10_000));
        producer.setUseTLS(options.isSet("tls"));
        producer.start();
        Options.print("event", "started");
        int count = options.number("count", 0);
        int interval = options.number("intervalMs", 0);
        for (int i = 0; count > 0 ? i < count : System.in.available() == 0; i++) {
            send(producer, options, i);
            Thread.sleep(interval);
        }
        Options.print("event", "done");
        producer.shutdown();
    }

    private static void send(DefaultMQProducer producer, Options options, int number) {
        byte[] body = ("message " + number).getBytes(StandardCharsets.UTF_8);
        Message message = new Message(options.text("topic"), options.text("tags", ""), "key-" + number, body);
        try {
            SendResult result = producer.send(message);
            Options.print("event", "sent", "number", number, "status", result.getSendStatus(), "id", result.getMsgId(),
                "broker", result.getMessageQueue().getBrokerName(), "queue", result.getMessageQueue().getQueueId());
        } catch (Exception problem) {
            Options.print("event", "failed", "number", number, "problem",
                problem.getCause() == null ? problem : problem + " because of " + problem.getCause());
        }
    }
}
