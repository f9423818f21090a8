// Runs Kafka's command line tools, unmodified, in one JVM: a JVM start for each call would cost a second of CPU.
//
// Reads calls from the standard input: the count of texts (int), then the texts as DataOutput.writeUTF writes them:
// the tool's class, the text of its standard input, its arguments. Writes for each call the exit status (int), and for
// its standard output and its standard error the length (int) and the bytes.
//
// Exit ends the call and not the JVM: what a tool prints after its exit is dropped, and then its shutdown hooks run. Each
// call loads the tool's classes again, because some of them count in static fields.
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;

public class KafkaTools {
    static final class Ended extends RuntimeException {
        final int status;

        Ended(int status) {
            super(null, null, false, false);
            this.status = status;
        }
    }

    record Result(int status, byte[] out, byte[] err) {}

    static final class ToolLoader extends ClassLoader {
        ToolLoader(ClassLoader parent) {
            super(parent);
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith("org.apache.kafka.tools.")) {
                return super.loadClass(name, resolve);
            }
            Class<?> loaded = findLoadedClass(name);
            return loaded != null ? loaded : define(name);
        }

        private Class<?> define(String name) throws ClassNotFoundException {
            try (InputStream file = getParent().getResourceAsStream(name.replace('.', '/') + ".class")) {
                if (file == null) {
                    throw new ClassNotFoundException(name);
                }
                byte[] bytes = file.readAllBytes();
                return defineClass(name, bytes, 0, bytes.length);
            } catch (IOException failed) {
                throw new ClassNotFoundException(name, failed);
            }
        }
    }

    static Ended ended;

    static synchronized void end(int status, String message) {
        if (ended == null) {
            if (message != null) {
                System.err.println(message);
            }
            ended = new Ended(status);
            System.setOut(new PrintStream(OutputStream.nullOutputStream()));
            System.setErr(new PrintStream(OutputStream.nullOutputStream()));
        }
        throw ended;
    }

    static int invoke(String tool, String[] arguments) {
        try {
            ClassLoader loader = new ToolLoader(KafkaTools.class.getClassLoader());
            Thread.currentThread().setContextClassLoader(loader);
            loader.loadClass(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Ended)) {
                thrown.getCause().printStackTrace();
                return 1;
            }
        } catch (ReflectiveOperationException unknown) {
            unknown.printStackTrace();
            return 127;
        }
        return 0;
    }

    /** The shutdown hooks of this JVM; needs --add-opens java.base/java.lang=ALL-UNNAMED. */
    @SuppressWarnings("unchecked")
    static Map<Thread, Thread> shutdownHooks() {
        try {
            Field hooks = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
            hooks.setAccessible(true);
            return (Map<Thread, Thread>) hooks.get(null);
        } catch (ReflectiveOperationException renamed) {
            throw new IllegalStateException(renamed);
        }
    }

    static Result call(String tool, String input, String[] arguments) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream newOut = new PrintStream(out, true, StandardCharsets.UTF_8);
        PrintStream newErr = new PrintStream(err, true, StandardCharsets.UTF_8);
        ended = null;
        Map<Thread, Thread> hooks = shutdownHooks();
        Set<Thread> before = Set.copyOf(hooks.keySet());
        System.setOut(newOut);
        System.setErr(newErr);
        System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
        int status = invoke(tool, arguments);
        System.setOut(newOut);
        System.setErr(newErr);
        for (Thread hook : List.copyOf(hooks.keySet())) {
            if (!before.contains(hook)) {
                hooks.remove(hook);
                hook.run();
            }
        }
        return new Result(ended == null ? status : ended.status, out.toByteArray(), err.toByteArray());
    }

    // Kafka 4.4 has its Exit in the package `internals`
    static void replaceExits() {
        try {
            Class<?> exit;
            try {
                exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
            } catch (ClassNotFoundException older) {
                exit = Class.forName("org.apache.kafka.common.utils.Exit");
            }
            Class<?> procedure = Class.forName(exit.getName() + "$Procedure");
            Object end = Proxy.newProxyInstance(
                    KafkaTools.class.getClassLoader(), new Class<?>[] {procedure}, (self, method, values) -> {
                        end((int) values[0], (String) values[1]);
                        return null;
                    });
            exit.getMethod("setExitProcedure", procedure).invoke(null, end);
            exit.getMethod("setHaltProcedure", procedure).invoke(null, end);
        } catch (ReflectiveOperationException renamed) {
            throw new IllegalStateException(renamed);
        }
    }

    public static void main(String[] none) throws IOException {
        DataInputStream calls = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream results = new DataOutputStream(new BufferedOutputStream(System.out));
        replaceExits();
        while (true) {
            String[] texts;
            try {
                texts = new String[calls.readInt()];
            } catch (EOFException noMoreCalls) {
                Runtime.getRuntime().halt(0);
                return;
            }
            for (int i = 0; i < texts.length; i++) {
                texts[i] = calls.readUTF();
            }
            Result result = call(texts[0], texts[1], Arrays.copyOfRange(texts, 2, texts.length));
            results.writeInt(result.status());
            for (byte[] text : new byte[][] {result.out(), result.err()}) {
                results.writeInt(text.length);
                results.write(text);
            }
            results.flush();
        }
    }
}
