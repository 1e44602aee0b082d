import java.io.PrintStream;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** Arguments of the form key=value, and lines of JSON for whoever reads our output. */
final class Options {
    /** Kept, for the agent turns standard output aside while a tool runs. */
    private static final PrintStream OUT = System.out;
    private final Map<String, String> values = new HashMap<>();

    Options(String[] arguments) {
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            values.put(argument.substring(0, at), argument.substring(at + 1));
        }
    }

    String text(String key) {
        String value = values.get(key);
        if (value == null) {
            throw new IllegalArgumentException("say " + key + "=...");
        }
        return value;
    }

    String text(String key, String otherwise) {
        return values.getOrDefault(key, otherwise);
    }

    int number(String key, int otherwise) {
        return Integer.parseInt(text(key, String.valueOf(otherwise)));
    }

    boolean isSet(String key) {
        return Boolean.parseBoolean(text(key, "false"));
    }

    /** Signs every request with accessKey and secretKey; null without them. */
    RPCHook signer() {
        String key = values.get("accessKey");
        return key == null ? null : new AclClientRPCHook(new SessionCredentials(key, text("secretKey")));
    }

    /** Prints one object: name, value, name, value. Strings are quoted, all else is printed as it is. */
    static synchronized void print(Object... namesAndValues) {
        StringBuilder line = new StringBuilder("{");
        for (int i = 0; i < namesAndValues.length; i += 2) {
            line.append(i == 0 ? "" : ",").append(quoted(namesAndValues[i])).append(':');
            Object value = namesAndValues[i + 1];
            line.append(value instanceof Number || value instanceof Boolean ? value : quoted(value));
        }
        OUT.println(line.append('}'));
    }

    private static String quoted(Object value) {
        StringBuilder text = new StringBuilder("\"");
        for (char c : String.valueOf(value).toCharArray()) {
            if (c == '"' || c == '\\') {
                text.append('\\').append(c);
            } else if (c < ' ') {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
        return text.append('"').toString();
    }

    /** Returns when the one who started us closes our standard input or says a word. */
    static void awaitStop() throws java.io.IOException {
        System.in.read();
    }
}
