package bccn.bpmux;

import static bccn.Checks.same;

import bccn.Checks;
import bccn.Checks.Vector;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Random;

/** Chunks and conversations of {@code clients/vectors/bpmux.json}. */
public final class EndpointChecks {
    private static final List<String> KINDS = List.of("cancel-request", "close-response", "cancel", "cancel-peer",
            "close", "close-peer", "message", "message-peer", "request", "response", "sink", "stream", "duplex", "ping",
            "credit", "credit-peer");
    private static final Map<String, Integer> OTHERS = Map.ofEntries(
            Map.entry("ack-cancel-request", Chunks.ACK_CANCEL_REQUEST),
            Map.entry("ack-close-response", Chunks.ACK_CLOSE_RESPONSE), Map.entry("ack-close", Chunks.ACK_CLOSE),
            Map.entry("ack-cancel", Chunks.ACK_CANCEL), Map.entry("pong-request", Chunks.PONG_REQUEST),
            Map.entry("ack-cancel-peer", Chunks.ACK_CANCEL_PEER), Map.entry("ack-close-peer", Chunks.ACK_CLOSE_PEER),
            Map.entry("ping-request", Chunks.PING_REQUEST), Map.entry("pong", Chunks.PONG),
            Map.entry("partial", Chunks.PARTIAL), Map.entry("ping-peer", Chunks.PING_PEER),
            Map.entry("pong-peer", Chunks.PONG_PEER));

    private EndpointChecks() {}

    public static void run() throws Exception {
        for (Vector vector : Checks.vectors("bpmux", "chunks")) {
            Checks.run(vector.text("name"), () -> chunk(vector));
        }
        for (Vector vector : Checks.vectors("bpmux", "invalid")) {
            Checks.run(vector.text("name"), () -> invalid(vector));
        }
        for (Vector vector : Checks.vectors("bpmux", "conversations")) {
            Checks.run(vector.text("name"), () -> new EndpointChecks.Player(vector, false).play());
            Checks.run(vector.text("name") + ", byte by byte", () -> new EndpointChecks.Player(vector, true).play());
        }
        Checks.run("a peer that does not answer is given up", EndpointChecks::silence);
        Checks.run("hostile bytes are a fault of the peer or none", EndpointChecks::hostile);
    }

    private static void chunk(Vector vector) throws BpmuxException {
        byte[] data = vector.bytes("chunk");
        String name = vector.text("kind");
        int kind = KINDS.contains(name) ? KINDS.indexOf(name) : OTHERS.get(name);
        long id = vector.text("id") == null ? Chunks.TOP : Long.parseLong(vector.text("id"));
        byte[] payload = vector.bytes("payload");
        String amount = vector.text("amount");
        long number = amount == null ? payload.length : Long.parseUnsignedLong(amount);
        int[] count = {0};
        new Reader().feed(data, data.length, (readKind, readId, readNumber, bytes, from, length, rest) -> {
            same(readKind, kind, "kind");
            same(readId, id, "id");
            same(readNumber, number, "number");
            same(Arrays.copyOfRange(bytes, from, from + length), payload, "payload");
            same(rest, 0L, "rest");
            count[0]++;
            return true;
        });
        same(count[0], 1, "chunks");
        if (vector.is("canonical")) {
            Bytes written = new Bytes(0);
            Chunks.head(written, kind, id, number);
            written.add(payload, 0, payload.length);
            same(written.take(), data, "written");
        }
    }

    private static void invalid(Vector vector) {
        byte[] data = vector.bytes("chunk");
        try {
            new Reader().feed(data, data.length, (kind, id, number, bytes, from, length, rest) -> true);
        } catch (BpmuxException e) {
            same(e.rule(), vector.text("rule"), "rule");
            return;
        }
        throw new AssertionError("it was taken");
    }

    private static void silence() {
        long second = 1_000_000_000L;
        Endpoint endpoint = new Endpoint(0, Limits.USUAL);
        endpoint.dataToSend(64);
        for (int i = 1; i <= 3; i++) {
            same(endpoint.expire(i * 10 * second), List.of(), "events");
            same(endpoint.dataToSend(64), new byte[] {(byte) 0xd3}, "a ping");
        }
        same(endpoint.expire(40 * second - 1), List.of(), "events");
        same(endpoint.expire(40 * second).get(0).kind(), Event.Kind.SILENT, "event");
    }

    /** What comes in conversations, with bytes changed and in other orders: nothing but its own exception ends it. */
    private static void hostile() throws Exception {
        List<byte[]> heard = new ArrayList<>();
        for (Vector conversation : Checks.vectors("bpmux", "conversations")) {
            for (Vector step : conversation.list("steps")) {
                if (step.text("in") != null) {
                    heard.add(step.bytes("in"));
                }
            }
        }
        Random random = new Random(11);
        int faults = 0;
        for (int round = 0; round < 3000; round++) {
            Endpoint endpoint = new Endpoint(0, new Limits(3, 3, 1000));
            List<Entity> ours = new ArrayList<>(List.of(endpoint.top()));
            try {
                for (int i = 0; i < 30; i++) {
                    byte[] data = heard.get(random.nextInt(heard.size())).clone();
                    if (data.length > 0 && random.nextInt(3) == 0) {
                        data[random.nextInt(data.length)] ^= (byte) (1 << random.nextInt(8));
                    }
                    for (Event event : endpoint.receive(data, data.length, 0)) {
                        ours.add(event.entity());
                    }
                    endpoint.dataToSend(1 << 16);
                    act(endpoint, ours, random);
                }
            } catch (BpmuxException e) {
                faults++;
                same(endpoint.hasDataToSend(), false, "something to send after a fault");
            }
        }
        same(faults > 1000 && faults < 3000, true, faults + " faults of 3000");
    }

    private static void act(Endpoint endpoint, List<Entity> ours, Random random) {
        Entity entity = ours.get(random.nextInt(ours.size()));
        switch (random.nextInt(6)) {
            case 0 -> ours.add(endpoint.open(Chunks.SINK + random.nextInt(3), new byte[3], random.nextInt(9)));
            case 1 -> ours.add(endpoint.request(new byte[2]));
            case 2 -> endpoint.cancel(entity, new byte[1]);
            case 3 -> endpoint.close(entity, new byte[1]);
            default -> {
                if (entity instanceof Channel channel) {
                    endpoint.send(channel, new byte[random.nextInt(40)]);
                }
            }
        }
        ours.removeIf(Objects::isNull);
    }

    /** Plays a conversation with an endpoint: what it does, hears and says. */
    private static final class Player {
        private final Vector conversation;
        private final boolean isPiecewise;
        private final Endpoint endpoint;
        private final Map<String, Entity> names = new HashMap<>();

        Player(Vector conversation, boolean isPiecewise) {
            this.conversation = conversation;
            this.isPiecewise = isPiecewise;
            String given = conversation.members().getOrDefault("limits", "{}");
            Vector limits = new Vector(Checks.members(given));
            endpoint = new Endpoint(0, new Limits(number(limits, "channels", Limits.USUAL.channels()),
                    number(limits, "requests", Limits.USUAL.requests()),
                    number(limits, "payload", Limits.USUAL.payload())));
            endpoint.dataToSend(1 << 16); // its own credit for the top level, before the conversation begins
            names.put(null, endpoint.top());
        }

        private static int number(Vector limits, String name, int usual) {
            return limits.text(name) == null ? usual : Integer.parseInt(limits.text(name));
        }

        void play() {
            int number = 0;
            for (Vector step : conversation.list("steps")) {
                String what = "step " + number++;
                if (step.text("do") != null) {
                    act(step);
                } else {
                    hear(step, what);
                }
                if (step.text("rule") == null) {
                    same(Checks.hex(endpoint.dataToSend(1 << 16)), step.text("out"), what + " says");
                }
            }
        }

        private void hear(Vector step, String what) {
            byte[] data = step.bytes("in");
            List<Event> heard = new ArrayList<>();
            String rule = null;
            try {
                for (int i = 0; i < (isPiecewise ? data.length : 1); i++) {
                    byte[] part = isPiecewise ? new byte[] {data[i]} : data;
                    heard.addAll(endpoint.receive(part, part.length, 0));
                }
            } catch (BpmuxException e) {
                heard.addAll(endpoint.events());
                rule = e.rule();
            }
            same(rule, step.text("rule"), what + " breaks");
            List<Vector> events = step.list("events");
            same(heard.size(), events.size(), what + " hears " + heard + ":");
            for (int i = 0; i < heard.size(); i++) {
                Event event = heard.get(i);
                Vector said = events.get(i);
                String kind = event.kind().name().toLowerCase(Locale.ROOT);
                same(kind, said.text("event"), what + " hears");
                if (List.of("opened", "requested", "refused").contains(kind) && !names.containsValue(event.entity())) {
                    names.put(said.text("of"), event.entity());
                }
                if (!kind.equals("finished")) {
                    same(event.entity(), names.get(said.text("of")), what + " hears of");
                }
                if (kind.equals("opened")) {
                    same(KINDS.get(((Channel) event.entity()).kind), said.text("kind"), what + " is opened");
                }
                if (said.text("payload") != null) {
                    same(Checks.hex(event.payload()), said.text("payload"), what + " hears");
                }
            }
        }

        private void act(Vector step) {
            String name = step.text("of");
            Entity entity = names.get(name);
            byte[] payload = step.bytes("payload");
            switch (step.text("do")) {
                case "open" -> names.put(name, endpoint.open(KINDS.indexOf(step.text("kind")), payload, 0));
                case "request" -> names.put(name, endpoint.request(payload));
                case "send" -> endpoint.send((Channel) entity, payload);
                case "grant" -> endpoint.grant((Channel) entity, Long.parseUnsignedLong(step.text("amount")));
                case "respond" -> endpoint.respond((Ask) entity, payload);
                case "close" -> endpoint.close(entity, payload);
                case "cancel" -> endpoint.cancel(entity, payload);
                default -> throw new AssertionError(step);
            }
        }
    }
}
