package bccn;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** What the tests of this package share: vectors, and checks that name what differs. */
public final class Checks {
    private static int count;
    private static int failures;

    private Checks() {}

    /** A test, which may throw anything. */
    public interface Test {
        void run() throws Exception;
    }

    /** An entry of a file of vectors. */
    public record Vector(Map<String, String> members) {
        public String text(String name) {
            String value = members.get(name);
            return value == null || value.equals("null") ? null : value.startsWith("\"") ? Json.string(value) : value;
        }

        public byte[] bytes(String name) {
            return unhex(text(name));
        }

        public boolean is(String name) {
            return "true".equals(members.get(name));
        }

        public List<Vector> list(String name) {
            List<String> elements = Json.elements(members.getOrDefault(name, "[]"));
            return elements.stream().map(Json::members).map(Vector::new).toList();
        }
    }

    public static List<Vector> vectors(String file, String list) throws IOException {
        String text = Files.readString(Path.of("../vectors", file + ".json"));
        List<Vector> found = new Vector(Json.members(text)).list(list);
        same(!found.isEmpty(), true, "entries of " + list);
        return found;
    }

    public static Map<String, String> members(String object) {
        return Json.members(object);
    }

    public static byte[] unhex(String text) {
        return text == null ? new byte[0] : HexFormat.of().parseHex(text);
    }

    public static String hex(byte[] data) {
        return HexFormat.of().formatHex(data);
    }

    public static void same(Object found, Object expected, String what) {
        boolean isSame = found instanceof byte[] bytes && expected instanceof byte[] others
                ? Arrays.equals(bytes, others) : Objects.equals(found, expected);
        if (!isSame) {
            throw new AssertionError(what + ": " + shown(found) + ", not " + shown(expected));
        }
    }

    private static String shown(Object value) {
        return value instanceof byte[] bytes ? hex(bytes) : String.valueOf(value);
    }

    public static void run(String name, Test test) {
        count++;
        try {
            test.run();
        } catch (Throwable e) {
            failures++;
            System.out.println("FAILED " + name + ": " + e);
            if (!(e instanceof AssertionError)) {
                e.printStackTrace(System.out);
            }
        }
    }

    /** Says how many tests there were, and ends the program with an error if one failed. */
    public static void end() {
        System.out.println(count + " tests, " + failures + " failed");
        System.exit(failures == 0 ? 0 : 1);
    }
}
