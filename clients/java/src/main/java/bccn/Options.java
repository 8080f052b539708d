package bccn;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.ThreadFactory;
import java.util.function.Consumer;
import javax.net.ssl.SSLContext;

/**
 * The options of a client, each with its default until it is set. {@link Bccn#connect} makes a copy.
 *
 * <pre>{@code new Options().format(Format.FULL).wait(Duration.ofSeconds(10))}</pre>
 */
public final class Options implements Cloneable {
    String address = "";
    String name = "";
    Format format = Format.PLAIN;
    boolean pack;
    boolean echo = true;
    Separator separator = Separator.SLASH;
    int queuePackets;
    int queueBytes;
    String queuePolicy = "";
    Tap tap = Tap.OFF;
    boolean reconnect = true;
    Duration timeout = Duration.ofSeconds(5);
    Duration wait = Duration.ZERO;
    int window = 256 * 1024;
    Path ca;
    Path cert;
    Path key;
    SSLContext context;
    String serverName = "";
    ThreadFactory threads = Options::daemonThread;
    Consumer<Notice> onNotice = Notices::log;

    /** The defaults. */
    public Options() {}

    private static Thread daemonThread(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        return thread;
    }

    Options copy() {
        try {
            return (Options) clone();
        } catch (CloneNotSupportedException e) {
            throw new AssertionError(e);
        }
    }

    /**
     * Where the door is.
     *
     * @param address {@code unix:PATH} or {@code tls://HOST:PORT}. By default {@code $BCCN_CONNECT}, or the first that
     *     is there of {@code $XDG_RUNTIME_DIR/bccnd/mux.sock} and {@code /run/bccnd/mux.sock}
     * @return this
     */
    public Options address(String address) {
        this.address = Objects.requireNonNull(address);
        return this;
    }

    /**
     * The own src.
     *
     * @param name by default the daemon gives {@code <host>/<program>/<pid>}
     * @return this
     */
    public Options name(String name) {
        this.name = Objects.requireNonNull(name);
        return this;
    }

    /**
     * How messages are delivered.
     *
     * @param format {@link Format#PLAIN} by default
     * @return this
     */
    public Options format(Format format) {
        this.format = Objects.requireNonNull(format);
        return this;
    }

    /**
     * Whether several messages share a packet, both ways: bursts are many times faster.
     *
     * @param pack false by default
     * @return this
     */
    public Options pack(boolean pack) {
        this.pack = pack;
        return this;
    }

    /**
     * Whether own messages that match are received.
     *
     * @param echo true by default
     * @return this
     */
    public Options echo(boolean echo) {
        this.echo = echo;
        return this;
    }

    /**
     * The separator of tokens in patterns.
     *
     * @param separator {@link Separator#SLASH} by default
     * @return this
     */
    public Options separator(Separator separator) {
        this.separator = Objects.requireNonNull(separator);
        return this;
    }

    /**
     * How many messages may wait for this client in the daemon.
     *
     * @param packets 0, the default: as the settings of the daemon have it
     * @return this
     */
    public Options queuePackets(int packets) {
        queuePackets = packets;
        return this;
    }

    /**
     * How much may wait for this client in the daemon.
     *
     * @param bytes 0, the default: as the settings of the daemon have it
     * @return this
     */
    public Options queueBytes(int bytes) {
        queueBytes = bytes;
        return this;
    }

    /**
     * What the daemon does when no more may wait.
     *
     * @param policy by default as the settings of the daemon have it
     * @return this
     */
    public Options queuePolicy(Policy policy) {
        return queuePolicy(policy.word);
    }

    /**
     * What the daemon does when no more may wait, in a word that this package does not know.
     *
     * @param policy the word
     * @return this
     */
    public Options queuePolicy(String policy) {
        queuePolicy = Objects.requireNonNull(policy);
        return this;
    }

    /**
     * Whether every datagram of the segment is shown.
     *
     * @param tap {@link Tap#OFF} by default
     * @return this
     */
    public Options tap(Tap tap) {
        this.tap = Objects.requireNonNull(tap);
        return this;
    }

    /**
     * Whether the client connects again.
     *
     * @param reconnect true by default; if not, calls fail once the connection has ended
     * @return this
     */
    public Options reconnect(boolean reconnect) {
        this.reconnect = reconnect;
        return this;
    }

    /**
     * How long a call waits for the daemon.
     *
     * @param timeout five seconds by default
     * @return this
     */
    public Options timeout(Duration timeout) {
        this.timeout = Objects.requireNonNull(timeout);
        return this;
    }

    /**
     * How long {@link Bccn#connect} keeps trying where no daemon is.
     *
     * @param wait no time by default: it tries once
     * @return this
     */
    public Options wait(Duration wait) {
        this.wait = Objects.requireNonNull(wait);
        return this;
    }

    /**
     * How much the door may send before the program has taken it.
     *
     * @param bytes 256 KiB by default; at least one
     * @return this
     */
    public Options window(int bytes) {
        if (bytes < 1) {
            throw new IllegalArgumentException("a window of " + bytes);
        }
        window = bytes;
        return this;
    }

    /**
     * Whom a connection by TLS trusts.
     *
     * @param file certificates in PEM; by default those that Java trusts
     * @return this
     */
    public Options ca(Path file) {
        ca = Objects.requireNonNull(file);
        return this;
    }

    /**
     * Who this program is to a door by TLS. The files are read for each connection, so they may be replaced.
     *
     * @param cert its certificate and those above it, in PEM
     * @param key its private key, in PEM (PKCS #8, without a password)
     * @return this
     */
    public Options cert(Path cert, Path key) {
        this.cert = Objects.requireNonNull(cert);
        this.key = Objects.requireNonNull(key);
        return this;
    }

    /**
     * Takes keys and certificates from elsewhere, such as a {@link java.security.KeyStore}, in place of PEM files.
     *
     * @param context for TLS
     * @return this
     */
    public Options context(SSLContext context) {
        this.context = Objects.requireNonNull(context);
        return this;
    }

    /**
     * The name that the certificate of the door must have.
     *
     * @param name by default the host of the address
     * @return this
     */
    public Options serverName(String name) {
        serverName = Objects.requireNonNull(name);
        return this;
    }

    /**
     * Makes the threads that call callbacks and subscribers: virtual ones, where Java has them.
     *
     * @param threads makes daemon threads by default
     * @return this
     */
    public Options threads(ThreadFactory threads) {
        this.threads = Objects.requireNonNull(threads);
        return this;
    }

    /**
     * Gets the notices, one after the other, in a thread of its own.
     *
     * @param function by default they are warnings of the {@link System.Logger} {@code bccn}
     * @return this
     */
    public Options onNotice(Consumer<Notice> function) {
        onNotice = Objects.requireNonNull(function);
        return this;
    }

    /** The value of the control request {@code queue}; empty if nothing is set. */
    String queue() {
        StringBuilder fields = new StringBuilder();
        if (queuePackets != 0) {
            fields.append(" packets=").append(queuePackets);
        }
        if (queueBytes != 0) {
            fields.append(" bytes=").append(queueBytes);
        }
        if (!queuePolicy.isEmpty()) {
            fields.append(" policy=").append(queuePolicy);
        }
        return fields.toString().strip();
    }
}
