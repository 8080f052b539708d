package bccn;

import static bccn.Checks.same;
import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;

import bccn.Checks.Vector;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;

/** Packets and patterns against the golden vectors, and what the daemon says as JSON. */
final class PacketChecks {
    private PacketChecks() {}

    static void run() throws Exception {
        for (Vector vector : Checks.vectors("patterns", "matches")) {
            Checks.run(vector.text("why"), () -> same(
                    Bccn.matches(vector.text("pattern"), vector.text("channel"),
                            vector.text("separator").equals(".") ? Separator.DOT : Separator.SLASH),
                    vector.is("matches"), vector.text("pattern") + " " + vector.text("channel")));
        }
        for (Vector vector : Checks.vectors("sbus", "valid")) {
            Checks.run(vector.text("name"), () -> valid(vector));
        }
        for (Vector vector : Checks.vectors("sbus", "tapped")) {
            Checks.run(vector.text("name"), () -> delivered(vector));
        }
        for (Vector vector : Checks.vectors("sbus", "invalid")) {
            String name = vector.text("name");
            if (name.startsWith("RECV:") || name.startsWith("PACK:")) { // only the daemon reads the others
                Checks.run(name, () -> broken(vector.bytes("packet")));
            }
        }
        for (Vector vector : Checks.vectors("bccn1", "valid")) {
            Checks.run(vector.text("name"), () -> datagram(vector));
        }
        Checks.run("hostile packets are read or a protocol error", PacketChecks::hostile);
        Checks.run("JSON is taken apart", PacketChecks::json);
    }

    private static void valid(Vector vector) {
        byte[] packet = vector.bytes("packet");
        boolean isCanonical = vector.is("canonical");
        switch (vector.text("type")) {
            case "MSG" -> {
                Message message = Packets.parse(packet, "").message();
                same(message.channel(), vector.text("chan"), "channel");
                same(message.payload(), vector.bytes("payload"), "payload");
                if (isCanonical) {
                    byte[] head = {};
                    same(Packets.message(message.channel(), head, message.payload()), packet, "written");
                }
            }
            case "SUB", "UNSUB" -> {
                if (isCanonical) {
                    same(Packets.subscription(vector.text("type"), vector.text("pattern")), packet, "written");
                }
            }
            case "CMSG" -> {
                if (isCanonical) { // the daemon writes no others
                    Packets.Said said = Packets.parse(packet, "");
                    same(said.key(), vector.text("key"), "key");
                    same(said.value(), new String(vector.bytes("value"), UTF_8), "value");
                    if (new String(vector.bytes("value"), UTF_8).indexOf('\ufffd') < 0) {
                        same(Packets.control(said.key(), said.value()), packet, "written");
                    }
                }
            }
            case "RECV" -> delivered(vector);
            case "PACK" -> {
                List<String> inside = new ArrayList<>();
                List<byte[]> packets = new ArrayList<>();
                Packets.unpack(packet, packet.length, each -> {
                    inside.add("\"" + Checks.hex(each) + "\"");
                    packets.add(each);
                });
                same(inside, Json.elements(vector.members().get("packets")), "packets");
                same(Packets.pack(packets, packet.length), packet, "written");
            }
            default -> { } // a datagram, which is a packet as it stands
        }
    }

    private static void delivered(Vector vector) {
        Message message = Packets.parse(vector.bytes("packet"), "").message();
        same(message.peer(), vector.text("peer"), "peer");
        same(message.verdict(), vector.text("verdict"), "verdict");
        same(message.datagram(), vector.bytes("datagram"), "datagram");
        same(message.interfaceName(), vector.text("interface") == null ? "" : vector.text("interface"), "interface");
        if (vector.text("unix_ns").length() < 19) {
            same(message.time(), Instant.ofEpochSecond(0, Long.parseLong(vector.text("unix_ns"))), "time");
        }
    }

    private static void datagram(Vector vector) {
        byte[] head = "RECV 10.0.0.1:5400 17 ok\0".getBytes(ISO_8859_1);
        byte[] datagram = vector.bytes("datagram");
        byte[] packet = Arrays.copyOf(head, head.length + datagram.length);
        System.arraycopy(datagram, 0, packet, head.length, datagram.length);
        Message message = Packets.parse(packet, vector.text("chan")).message();
        same(message.src(), vector.text("src"), "src");
        same(message.seq(), Long.parseUnsignedLong(vector.text("seq")), "seq");
        same(message.channel(), vector.text("chan"), "channel");
        same(message.payload(), vector.bytes("payload"), "payload");
    }

    private static void read(byte[] packet) {
        if (Packets.isPack(packet)) {
            Packets.unpack(packet, packet.length, each -> Packets.parse(each, ""));
        } else {
            Packets.parse(packet, "");
        }
    }

    private static void broken(byte[] packet) {
        try {
            read(packet);
        } catch (BccnException e) {
            same(e.code(), Code.PROTOCOL, "code");
            return;
        }
        throw new AssertionError("it was read");
    }

    private static void hostile() throws Exception {
        Random random = new Random(7);
        for (Vector vector : Checks.vectors("sbus", "valid")) {
            for (int i = 0; i < 50; i++) {
                byte[] packet = vector.bytes("packet");
                for (int changes = random.nextInt(4); changes >= 0 && packet.length > 0; changes--) {
                    packet[random.nextInt(packet.length)] = (byte) " :|]\0\nR9"
                            .charAt(random.nextInt(8));
                }
                try {
                    read(Arrays.copyOf(packet, random.nextInt(packet.length + 1)));
                } catch (BccnException e) {
                    same(e.code(), Code.PROTOCOL, "code");
                }
            }
        }
    }

    private static void json() {
        String page = " {\"clients\" : [ {\"name\":\"a\\\"]\\u0041\",\"x\":[1,{}]}, 2.5 ,null],\"next\":\"n\\n1\" } ";
        Map<String, String> members = Json.members(page);
        same(Json.elements(members.get("clients")),
                List.of("{\"name\":\"a\\\"]\\u0041\",\"x\":[1,{}]}", "2.5", "null"), "elements");
        same(Json.string(members.get("next")), "n\n1", "string");
        same(Json.string(Json.members(Json.elements(members.get("clients")).get(0)).get("name")), "a\"]A", "string");
        same(Json.elements("[]"), List.of(), "elements");
        for (String wrong : List.of("", "{", "[1", "[1]]", "{\"a\"}", "{\"a\":}", "[,]", "{1:2}", "[\"a]", "x")) {
            try {
                if (wrong.startsWith("[")) {
                    Json.elements(wrong);
                } else {
                    Json.members(wrong);
                }
            } catch (IllegalArgumentException e) {
                continue;
            }
            throw new AssertionError(wrong + " was taken");
        }
    }
}
