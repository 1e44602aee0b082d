import java.util.Arrays;
import java.util.List;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.manipulation.Filter;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Runs released tests: class names below org.apache.rocketmq.test, and -Class.method for what is left out.
 *
 * Prints `ok Class.method 1234 ms` or `failed ...` for each, traces in between, and `end` when all is done.
 */
public final class Suite extends RunListener {
    private long startedMs;
    private boolean isFailed;

    private static String name(Description test) {
        return test.getTestClass().getSimpleName() + "." + test.getMethodName();
    }

    public static void main(String[] words) throws Exception {
        List<String> given = Arrays.asList(words);
        JUnitCore core = new JUnitCore();
        core.addListener(new Suite());
        Filter wanted = new Filter() {
            @Override
            public boolean shouldRun(Description test) {
                return test.isSuite() || !given.contains("-" + name(test).replaceAll("\\[.*", ""));
            }

            @Override
            public String describe() {
                return "all that can be seen from outside";
            }
        };
        for (String word : given) {
            if (!word.startsWith("-")) {
                core.run(Request.aClass(Class.forName("org.apache.rocketmq.test." + word)).filterWith(wanted));
            }
        }
        System.out.println("end");
        System.exit(0);
    }

    @Override
    public void testStarted(Description test) {
        startedMs = System.currentTimeMillis();
        isFailed = false;
    }

    @Override
    public void testFailure(Failure failure) {
        isFailed = true;
        System.out.println(failure.getDescription().getDisplayName() + ": " + failure.getTrace());
        if (failure.getDescription().getMethodName() == null) {
            System.out.println("failed " + failure.getDescription().getTestClass().getSimpleName() + " as a whole");
        }
    }

    @Override
    public void testFinished(Description test) {
        String outcome = isFailed ? "failed " : "ok ";
        System.out.println(outcome + name(test) + " " + (System.currentTimeMillis() - startedMs) + " ms");
    }
}
