package bccn;

import static bccn.Checks.same;
import static java.nio.charset.StandardCharsets.UTF_8;

import bccn.bpmux.FakeDoor;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLServerSocket;
import javax.net.ssl.SSLSocket;

/** Carriers, and doors that are none. It is given a folder with certificates, and the address of a real door by TLS. */
final class CarrierChecks {
    private static final Duration LONG = Duration.ofSeconds(30);
    /** How long a door is waited for that never says anything. */
    private static final Duration BRIEF = Duration.ofMillis(500);
    private static Path folder;

    private CarrierChecks() {}

    private interface Server {
        void serve(InputStream in, OutputStream out) throws Exception;
    }

    static void run(Path certificates, String door) {
        folder = certificates;
        Checks.run("a real door by TLS", () -> {
            try (Bccn bus = Bccn.connect(options(door).cert(file("own.pem"), file("own.key")))) {
                Subscription own = bus.subscribe("live/tls");
                bus.publish("live/tls", "x".repeat(1000));
                same(own.take(LONG).get().text().length(), 1000, "bytes");
                same(bus.name().startsWith("here/own/"), true, bus.name());
            }
        });
        Checks.run("a session by TLS", () -> overTls(options -> options.cert(file("own.pem"), file("own.key")), null));
        Checks.run("a door by another name is none",
                () -> overTls(options -> options.cert(file("own.pem"), file("own.key")).serverName("elsewhere"),
                        Code.UNAVAILABLE));
        Checks.run("a door of an authority that is not ours is none",
                () -> {
                    String said = overTls("ca.pem",
                            options -> options.cert(file("own.pem"), file("own.key")).ca(file("own.pem")),
                            Code.UNAVAILABLE);
                    same(said.endsWith(": its certificate is of nobody that we trust; the option ca names whom we do"),
                            true, said);
                });
        Checks.run("a program without a certificate is refused", () -> overTls(options -> options, Code.REFUSED));
        Checks.run("a program that the door does not trust is refused", () -> overTls("door.pem",
                options -> options.cert(file("own.pem"), file("own.key")), Code.REFUSED));
        Checks.run("keys from elsewhere", () -> {
            SSLContext context = Pem.context(file("ca.pem"), file("own.pem"), file("own.key"));
            overTls(options -> options.context(context), null);
        });
        Checks.run("a refusal is told at once", () -> fails(
                (in, out) -> FakeDoor.serve(in, out, "refused not you".getBytes(UTF_8), packet -> null),
                LONG, Code.REFUSED, "not you"));
        Checks.run("a place at a full door is waited for", CarrierChecks::aFullDoor);
        Checks.run("an answer just before an interrupt counts", CarrierChecks::anAnswerAtAnInterrupt);
        Checks.run("a door that is none is a protocol error", () -> fails(
                (in, out) -> untilItLeaves(in, out, "HTTP/1.1 400 Bad Request\r\n\r\n".getBytes(UTF_8)),
                LONG, Code.PROTOCOL, "rule"));
        Checks.run("a door beyond its credit is a protocol error", () -> fails(
                (in, out) -> untilItLeaves(in, out, FakeDoor.beyondItsCredit()), LONG, Code.PROTOCOL, "credit"));
        Checks.run("a door that says nothing is given up", () -> fails(
                (in, out) -> in.readAllBytes(), BRIEF, Code.UNAVAILABLE, "does not answer"));
        Checks.run("a door that leaves at once is unavailable", () -> fails(
                (in, out) -> { }, LONG, Code.UNAVAILABLE, ""));
        Checks.run("a daemon that does not answer is given up", () -> fails(
                (in, out) -> FakeDoor.serve(in, out, null, packet -> null), BRIEF, Code.UNAVAILABLE, "does not answer"));
        Checks.run("a certificate that is no user's is refused", () -> {
            try (Bccn bus = Bccn.connect(options(door).cert(file("door.pem"), file("door.key")))) {
                throw new AssertionError(bus.name() + " is connected");
            } catch (BccnException e) {
                same(e.code(), Code.REFUSED, e.getMessage());
            }
        });
        Checks.run("a file that is wrong is named", () -> {
            invalid(options(door).ca(file("none.pem")), "there is no file .*none.pem");
            invalid(options(door).ca(file("own.key")), ".*own.key has no certificate.*");
            invalid(options(door).cert(file("own.pem"), file("own.pem")), ".*own.pem has no PRIVATE KEY.*");
            invalid(options(door).cert(file("own.pem"), file("door.key")),
                    ".*door.key is not the key of the certificate in .*own.pem");
        });
        Checks.run("an address that is none is invalid", CarrierChecks::wrongAddresses);
    }

    /** A file in the folder of the tests. */
    static Path file(String name) {
        return folder.resolve(name);
    }

    private static void invalid(Options options, String text) {
        try (Bccn bus = Bccn.connect(options)) {
            throw new AssertionError(bus.name() + " is connected");
        } catch (BccnException e) {
            same(e.code(), Code.INVALID, e.getMessage());
            same(e.getMessage().matches("TLS.*: " + text), true, e.getMessage());
        }
    }

    private static byte[] daemon(byte[] packet) {
        String said = new String(packet, UTF_8);
        return said.startsWith("CMSG whoami") ? "CMSG whoami\0here/test/1".getBytes(UTF_8)
                : said.startsWith("CMSG ping") ? "CMSG pong\0".getBytes(UTF_8) : null;
    }

    private static void start(Server server, InputStream in, OutputStream out) {
        try (in; out) {
            server.serve(in, out);
        } catch (Exception e) {
            return; // the client has left, as it should
        }
    }

    private static Options options(String address) {
        return new Options().timeout(LONG).ca(file("ca.pem")).address(address);
    }

    private interface Setting {
        Options with(Options options);
    }

    private static void overTls(Setting setting, Code expected) throws Exception {
        overTls("ca.pem", setting, expected);
    }

    /** Returns what the error says, if there is one. */
    private static String overTls(String trusted, Setting setting, Code expected) throws Exception {
        SSLContext context = Pem.context(file(trusted), file("door.pem"), file("door.key"));
        InetAddress here = InetAddress.getByName("127.0.0.1");
        try (SSLServerSocket listener =
                (SSLServerSocket) context.getServerSocketFactory().createServerSocket(0, 1, here)) {
            listener.setNeedClientAuth(true);
            Thread door = new Thread(() -> {
                try (SSLSocket socket = (SSLSocket) listener.accept()) {
                    start((in, out) -> FakeDoor.serve(in, out, null, CarrierChecks::daemon),
                            socket.getInputStream(), socket.getOutputStream());
                } catch (IOException e) {
                    return; // nobody came
                }
            });
            door.start();
            Options options = options("tls://127.0.0.1:" + listener.getLocalPort());
            Code found = null;
            String text = "";
            try (Bccn bus = Bccn.connect(setting.with(options))) {
                same(bus.name(), "here/test/1", "name");
                bus.barrier();
            } catch (BccnException e) {
                found = e.code();
                text = e.getMessage();
            }
            same(found, expected, text);
            door.join();
            return text;
        }
    }

    /** Says so much. Who writes to a door that has left hears of that, and not what was said. */
    private static void untilItLeaves(InputStream in, OutputStream out, byte[] said) throws IOException {
        out.write(said);
        in.readAllBytes();
    }

    private static void fails(Server server, Duration timeout, Code code, String text) throws Exception {
        Path path = file("door.sock");
        Files.deleteIfExists(path);
        try (ServerSocketChannel listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            listener.bind(UnixDomainSocketAddress.of(path));
            Thread door = new Thread(() -> {
                try (SocketChannel socket = listener.accept()) {
                    start(server, Channels.newInputStream(socket), Channels.newOutputStream(socket));
                } catch (IOException e) {
                    return; // nobody came
                }
            });
            door.start();
            try (Bccn bus = Bccn.connect(new Options().address("unix:" + path).timeout(timeout))) {
                throw new AssertionError(bus.name() + " is connected");
            } catch (BccnException e) {
                same(e.code(), code, e.getMessage());
                same(e.getMessage().contains(text), true, e.getMessage());
            }
            door.join();
        }
    }

    private static void aFullDoor() throws Exception {
        Path path = file("full.sock");
        Deque<byte[]> refusals = new ArrayDeque<>(List.of("limit: too many are open".getBytes(UTF_8)));
        try (ServerSocketChannel listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            listener.bind(UnixDomainSocketAddress.of(path));
            Thread door = new Thread(() -> {
                for (int visit = 0; visit < 2; visit++) {
                    try (SocketChannel socket = listener.accept()) {
                        start((in, out) -> FakeDoor.serve(in, out, refusals.poll(), CarrierChecks::daemon),
                                Channels.newInputStream(socket), Channels.newOutputStream(socket));
                    } catch (IOException e) {
                        return; // nobody came
                    }
                }
            });
            door.start();
            Options options = new Options().address("unix:" + path).wait(LONG);
            try (Bccn bus = Bccn.connect(options.timeout(LONG))) {
                same(bus.name(), "here/test/1", "name");
            }
            door.join();
        }
    }

    private static void anAnswerAtAnInterrupt() throws Exception {
        Path path = file("answer.sock");
        try (ServerSocketChannel listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            listener.bind(UnixDomainSocketAddress.of(path));
            Thread door = new Thread(() -> {
                try (SocketChannel socket = listener.accept()) {
                    start((in, out) -> FakeDoor.serve(in, out, null, CarrierChecks::daemon),
                            Channels.newInputStream(socket), Channels.newOutputStream(socket));
                } catch (IOException e) {
                    return; // nobody came
                }
            });
            door.start();
            try (Bccn bus = Bccn.connect(options("unix:" + path))) {
                Session session = bus.session;
                boolean[] isInterrupted = {false};
                Thread watching = new Thread(() -> {
                    bus.watch("a", (pattern, wanted) -> { });
                    isInterrupted[0] = Thread.interrupted();
                });
                watching.start();
                session.lock.lock();
                try {
                    while (session.asked.isEmpty()) {
                        session.changed.awaitNanos(1_000_000);
                    }
                    watching.interrupt();
                    while (!session.lock.hasQueuedThread(watching)) {
                        Thread.sleep(1);
                    }
                    session.asked.poll().finish("a", null);
                } finally {
                    session.lock.unlock();
                }
                watching.join();
                same(isInterrupted[0], true, "interrupted");
                same(session.watches.patterns().toString(), "[a]", "watches");
            }
            door.join();
        }
    }

    private static void wrongAddresses() {
        for (String wrong : List.of("x", "tcp://a:1", "tls://a", "tls://:1", "tls://a:0", "tls://a:99999", "/run/x")) {
            try {
                Bccn.connect(new Options().address(wrong)).close();
            } catch (BccnException e) {
                same(e.code(), Code.INVALID, wrong);
                continue;
            }
            throw new AssertionError(wrong + " was taken");
        }
    }
}
