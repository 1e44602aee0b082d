import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Many steps in one JVM: a line on standard input is a verb and its options, tabs between; each gets one answer. */
public final class Agent {
    private final Sending sending;
    private final Consuming consuming;
    private final Asking asking;

    private Agent(Options options) throws Exception {
        sending = new Sending(options);
        consuming = new Consuming(options);
        asking = new Asking(options);
    }

    public static void main(String[] arguments) throws Exception {
        Agent agent = new Agent(new Options(arguments));
        Options.print("event", "started");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            try {
                Options.print("event", "answer", "value", agent.run(words[0], Arrays.copyOfRange(words, 1, words.length)));
            } catch (Throwable problem) {
                Options.print("event", "problem", "verb", words[0], "problem", problem);
            }
        }
        System.exit(0);
    }

    private Object run(String verb, String[] words) throws Exception {
        if (verb.equals("admin")) {
            return admin(words);
        }
        Options options = new Options(words);
        switch (verb) {
            case "send":
                return sending.send(options);
            case "load":
                return sending.load(options);
            case "endload":
                return sending.endLoad();
            case "view":
                return sending.view(options);
            case "query":
                return sending.query(options);
            case "offset":
                return sending.offset(options);
            case "push":
                return consuming.push(options);
            case "assigned":
                return consuming.assigned(options);
            case "lite":
                return consuming.lite(options);
            case "poll":
                return consuming.poll(options);
            case "seek":
                return consuming.seek(options);
            case "pull":
                return consuming.pull(options);
            case "stop":
                return consuming.stop(options);
            case "ask":
                return asking.ask(options);
            case "answer":
                return asking.answer(options);
            case "tracedSend":
                return asking.tracedSend(options);
            case "tracedPush":
                return asking.tracedPush(options);
            case "quit":
                return asking.quit(options);
            default:
                throw new IllegalArgumentException("no such verb: " + verb);
        }
    }

    /** What the released mqadmin prints for these words, errors included. */
    private static String admin(String[] words) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        try (PrintStream both = new PrintStream(printed, true, "UTF-8")) {
            System.setOut(both);
            System.setErr(both);
            MQAdminStartup.main0(words, null);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return printed.toString("UTF-8");
    }
}
