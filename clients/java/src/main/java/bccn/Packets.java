package bccn;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.function.Consumer;

/** The packets of the local socket (clients/PROTOCOL.md, "Packets"; clients/vectors/sbus.json). */
final class Packets {
    /** Bytes: the word of a PACK; a length in it; the longest packet. */
    static final int PACK_HEAD = 5;

    static final int LENGTH = 4;
    static final int LIMIT = 128 * 1024;

    private static final String WHITE_SPACE = " \t\n\u000b\f\r\0";

    private Packets() {}

    /** What a packet says: a message, or else the key and value of a control packet. */
    record Said(Message message, String key, String value) {}

    /** Reads one packet, which is no PACK. If the message is on the channel {@code last}, it has that String. */
    static Said parse(byte[] packet, String last) {
        int space = indexOf(packet, ' ', 0);
        int nul = indexOf(packet, 0, space);
        int end = nul < 0 ? packet.length : nul;
        byte[] rest = nul < 0 ? Message.NOTHING : Arrays.copyOfRange(packet, nul + 1, packet.length);
        switch (space < 0 ? "" : new String(packet, 0, space, ISO_8859_1)) {
            case "MSG":
                if (nul >= 0) {
                    String channel = text(packet, space + 1, nul, last);
                    return new Said(new Message(channel, rest, 0, Message.Origin.UNKNOWN), null, null);
                }
                break;
            case "CMSG":
                if (end > space + 1) {
                    String key = new String(packet, space + 1, end - space - 1, UTF_8);
                    return new Said(null, key, new String(rest, UTF_8));
                }
                break;
            case "RECV":
                String[] fields = new String(packet, space + 1, end - space - 1, ISO_8859_1).split(" ", -1);
                boolean hasInterface = fields.length == 4 && !fields[3].isEmpty();
                if (nul >= 0 && (fields.length == 3 || hasInterface) && isNumber(fields[1], 20)) {
                    return new Said(full(fields, rest, last), null, null);
                }
                break;
            default:
        }
        throw alien(packet);
    }

    /** Only a tap gets bytes that are not BCCN1: those have no fields. */
    private static Message full(String[] fields, byte[] datagram, String last) {
        String channel = "";
        String src = "";
        long seq = 0;
        byte[] payload = Message.NOTHING;
        int envelope = indexOf(datagram, ']', 0);
        int first = envelope < 0 ? -1 : indexOf(datagram, ':', envelope);
        int second = first < 0 ? -1 : indexOf(datagram, ':', first + 1);
        int bar = envelope < 0 ? -1 : indexOf(datagram, '|', envelope);
        int third = second < 0 ? -1 : indexOf(datagram, ':', second + 1);
        if (second >= 0 && second < bar && (third < 0 || third > bar)) {
            String number = new String(datagram, first + 1, second - first - 1, ISO_8859_1);
            if (isNumber(number, 20) && isBelow64Bits(number)) {
                seq = Long.parseUnsignedLong(number);
                src = new String(datagram, envelope + 1, first - envelope - 1, ISO_8859_1);
                channel = text(datagram, second + 1, bar, last);
                payload = Arrays.copyOfRange(datagram, bar + 1, datagram.length);
            }
        }
        String by = fields.length == 4 ? fields[3] : "";
        Message.Origin origin =
                new Message.Origin(src, seq, fields[0], time(fields[1]), fields[2], by, datagram);
        return new Message(channel, payload, 0, origin);
    }

    /** A time beyond 63 bits becomes the last one. */
    private static Instant time(String digits) {
        long ns;
        try {
            ns = Long.parseLong(digits);
        } catch (NumberFormatException e) {
            ns = Long.MAX_VALUE;
        }
        return Instant.ofEpochSecond(0, ns);
    }

    private static String text(byte[] data, int from, int to, String last) {
        if (last.length() == to - from) {
            int at = from;
            while (at < to && last.charAt(at - from) == (data[at] & 0xff)) {
                at++;
            }
            if (at == to) {
                return last;
            }
        }
        return new String(data, from, to - from, ISO_8859_1);
    }

    static BccnException alien(byte[] packet) {
        String start = new String(packet, 0, Math.min(packet.length, 32), ISO_8859_1).replaceAll("[^ -~]", ".");
        return BccnException.protocol("the daemon sent \"" + start + "\", which is not a packet of this protocol");
    }

    static boolean isPack(byte[] packet) {
        return packet.length >= PACK_HEAD && packet[0] == 'P' && packet[1] == 'A' && packet[2] == 'C'
                && packet[3] == 'K' && packet[4] == ' ';
    }

    /** Calls {@code take} with each packet inside a PACK. */
    static void unpack(byte[] packet, int size, Consumer<byte[]> take) {
        int at = PACK_HEAD;
        while (at < size) {
            long length = size - at < LENGTH ? Long.MAX_VALUE : number(packet, at);
            at += LENGTH;
            if (length > size - at) {
                throw alien(packet);
            }
            at += (int) length;
            take.accept(Arrays.copyOfRange(packet, at - (int) length, at));
        }
    }

    private static long number(byte[] data, int at) {
        long number = 0;
        for (int i = at; i < at + LENGTH; i++) {
            number = number << 8 | data[i] & 0xff;
        }
        return number;
    }

    // --- to write ---

    /** A MSG. Only a NUL in the channel is refused, which would end the channel early; the daemon checks the rest. */
    static byte[] message(String channel, byte[] head, byte[] payload) {
        if (channel.indexOf('\0') >= 0) {
            throw BccnException.invalid("channel: must not contain NUL");
        }
        byte[] name = channel.getBytes(UTF_8);
        byte[] packet = new byte[5 + name.length + head.length + payload.length];
        packet[0] = 'M';
        packet[1] = 'S';
        packet[2] = 'G';
        packet[3] = ' ';
        System.arraycopy(name, 0, packet, 4, name.length);
        System.arraycopy(head, 0, packet, 5 + name.length, head.length);
        System.arraycopy(payload, 0, packet, 5 + name.length + head.length, payload.length);
        return packet;
    }

    /** A PACK of this size in all. */
    static byte[] pack(List<byte[]> packets, int size) {
        ByteBuffer pack = ByteBuffer.allocate(size).put("PACK ".getBytes(UTF_8));
        packets.forEach(packet -> pack.putInt(packet.length).put(packet));
        return pack.array();
    }

    static byte[] subscription(String word, String pattern) {
        for (int i = 0; i < pattern.length(); i++) {
            char letter = pattern.charAt(i);
            if (letter >= 0x80 || WHITE_SPACE.indexOf(letter) >= 0) {
                throw BccnException.invalid("pattern \"" + pattern + "\": must be ASCII without white space");
            }
        }
        return (word + " " + pattern).getBytes(UTF_8);
    }

    static byte[] control(String key, String value) {
        if (key.isEmpty() || key.chars().anyMatch(letter -> WHITE_SPACE.indexOf(letter) >= 0)) {
            throw BccnException.invalid("control key \"" + key + "\": must not be empty nor contain white space");
        }
        return ("CMSG " + key + "\0" + value).getBytes(UTF_8);
    }

    // --- patterns ---

    /** Says what {@link Bccn#matches} does. */
    static boolean matches(String pattern, String channel, Separator separator) {
        if (channel.startsWith("!")) {
            return false;
        }
        char border = separator.text.charAt(0);
        int p = 0;
        int c = 0;
        while (true) {
            int patternEnd = pattern.indexOf(border, p);
            int channelEnd = channel.indexOf(border, c);
            String token = channel.substring(c, channelEnd < 0 ? channel.length() : channelEnd);
            if (patternEnd < 0) {
                String last = pattern.substring(p);
                return last.isEmpty() || (last.equals(">") ? c < channel.length()
                        : channelEnd < 0 && tokenMatches(last, token));
            }
            if (channelEnd < 0 || !tokenMatches(pattern.substring(p, patternEnd), token)) {
                return false;
            }
            p = patternEnd + 1;
            c = channelEnd + 1;
        }
    }

    private static boolean tokenMatches(String pattern, String token) {
        int star = pattern.indexOf('*');
        if (star < 0) {
            return pattern.equals(token);
        }
        return star == pattern.length() - 1 && token.startsWith(pattern.substring(0, star)); // elsewhere: never
    }

    private static boolean isBelow64Bits(String digits) {
        return digits.length() < 20 || digits.compareTo("18446744073709551615") <= 0;
    }

    private static boolean isNumber(String text, int mostDigits) {
        for (int i = 0; i < text.length(); i++) {
            if (text.charAt(i) < '0' || text.charAt(i) > '9') {
                return false;
            }
        }
        return !text.isEmpty() && text.length() <= mostDigits;
    }

    static int indexOf(byte[] data, int value, int from) {
        for (int i = Math.max(from, 0); i < data.length; i++) {
            if (data[i] == value) {
                return i;
            }
        }
        return -1;
    }
}
