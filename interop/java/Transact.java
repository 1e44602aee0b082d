import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A transactional producer. A body says how its transaction ends, here and when the broker asks: `unknown-commit-7`.
 * Sends what `bodies` lists, separated by commas, and answers until it is told to stop.
 */
public final class Transact {
    private Transact() {
    }

    private static LocalTransactionState state(String word) {
        switch (word) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }

    private static String body(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static final class Decides implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return state(body(message).split("-")[0]);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String body = body(message);
            Options.print("event", "checked", "body", body, "topic", message.getTopic(), "queue", message.getQueueId(),
                "id", message.getMsgId(), "transaction", message.getTransactionId(), "keys", message.getKeys(),
                "times", message.getUserProperty("TRANSACTION_CHECK_TIMES"));
            return state(body.split("-")[1]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        TransactionMQProducer producer = new TransactionMQProducer(options.text("group"));
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setInstanceName("transact-" + System.nanoTime());
        producer.setSendMsgTimeout(10_000);
        producer.setTransactionListener(new Decides());
        producer.start();
        Options.print("event", "started");
        for (String body : options.text("bodies", "").split(",")) {
            if (!body.isEmpty()) {
                Message message = new Message(options.text("topic"), "TagA", "key-" + body, body.getBytes(StandardCharsets.UTF_8));
                TransactionSendResult result = producer.sendMessageInTransaction(message, null);
                Options.print("event", "sent", "body", body, "status", result.getSendStatus(), "id", result.getMsgId(),
                    "transaction", result.getTransactionId(), "state", result.getLocalTransactionState());
            }
        }
        Options.print("event", "done");
        Options.awaitStop();
        producer.shutdown();
    }
}
