import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayOutputStream;
import java.time.Duration;

/** The words of the script: bytes, of which those that no word can have are written {@code %XX}. */
final class Words {
    private Words() {}

    static String of(byte[] data) {
        if (data.length == 0) {
            return "%";
        }
        StringBuilder word = new StringBuilder();
        for (byte each : data) {
            if (each > ' ' && each <= '~' && each != '%') {
                word.append((char) each);
            } else {
                word.append(String.format("%%%02X", each));
            }
        }
        return word.toString();
    }

    static String of(String text) {
        return of(text.getBytes(UTF_8));
    }

    /** Of what came from the daemon as bytes: a channel, a source. */
    static String ofBytes(String text) {
        return of(text.getBytes(ISO_8859_1));
    }

    static byte[] bytes(String word) {
        if (word.equals("%")) {
            return new byte[0];
        }
        ByteArrayOutputStream data = new ByteArrayOutputStream();
        for (int i = 0; i < word.length(); i++) {
            if (word.charAt(i) == '%') {
                data.write(Integer.parseInt(word.substring(i + 1, i + 3), 16));
                i += 2;
            } else {
                data.write(word.charAt(i));
            }
        }
        return data.toByteArray();
    }

    static String text(String word) {
        return new String(bytes(word), UTF_8);
    }

    static Duration seconds(String word) {
        return Duration.ofNanos((long) (Double.parseDouble(word) * 1e9));
    }
}
