package bccn;

import static java.nio.charset.StandardCharsets.US_ASCII;
import static java.nio.charset.StandardCharsets.UTF_8;

import bccn.bpmux.Ask;
import bccn.bpmux.BpmuxException;
import bccn.bpmux.Channel;
import bccn.bpmux.Endpoint;
import bccn.bpmux.Entity;
import bccn.bpmux.Event;
import bccn.bpmux.Limits;
import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.security.cert.CertPathBuilderException;
import java.security.cert.CertificateException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import javax.net.ssl.SSLException;

/**
 * One connection to the door, with one duplex that is the session at the daemon.
 *
 * <p>The thread of the session reads, a thread of the link writes, and one thread for all links of the program looks at
 * the time. The lock of the session guards everything but the carrier, and nobody holds it while bytes go out or come.
 *
 * <p>Beside the session there are replays, each a stream, and questions to the door. They have {@link User}s.
 *
 * <p>Credit: the door may send what the window allows. A packet counts until the client has room for more messages, so
 * a program that does not receive makes the door, and then the daemon, hold what comes.
 */
final class Link {
    /** Bytes of packets that wait to be sent; beyond it calls wait. */
    private static final int SEND_AHEAD = 64 * 1024;

    private static final int BUFFER = 64 * 1024;
    /** Beside the session: the door has 32 replays at a time, and a question is answered soon. */
    private static final Limits LIMITS = new Limits(33, 32, Packets.LIMIT);

    private static final String ALERT = "Received fatal alert"; // how TLS of Java begins what the other side said
    private static final byte[] BUS = "bus".getBytes(US_ASCII);
    private static final byte[] UNWANTED = "limit: nothing is served here".getBytes(US_ASCII);
    private static final ScheduledThreadPoolExecutor TIMERS =
            new ScheduledThreadPoolExecutor(1, work -> Session.thread("bccn timers", work));

    static {
        TIMERS.setRemoveOnCancelPolicy(true);
    }

    /** Who has opened a stream, or asked. Called under the lock. */
    interface User {
        void said(byte[] payload);

        /** Nothing more comes; {@code reason} is null at its normal end. */
        void ended(BccnException reason);
    }

    private final Session session;
    private final Carrier carrier;
    private final Map<Entity, User> users = new HashMap<>();
    private final Condition wake; // of the writer
    private final Deque<byte[]> greeting = new ArrayDeque<>();
    private Endpoint endpoint;
    private Channel duplex;
    private long owed; // bytes of packets that were handled and not granted again
    private boolean isDeaf; // the door takes no more packets
    private boolean isLeaving;
    private BccnException reason; // why the link ends, if that is known
    private BccnException farewell; // why the door ends it, if it says no more
    int packLimit; // bytes of a PACK; 0: packing is not agreed
    boolean isGreeted;
    boolean isOver;

    Link(Session session) {
        this.session = session;
        carrier = Carrier.to(session.options);
        wake = session.lock.newCondition();
    }

    /** Connects, greets, and reads to the end. Returns why it ended. */
    BccnException run() {
        Future<?> limit = TIMERS.schedule(this::giveUp, session.options.timeout.toNanos(), TimeUnit.NANOSECONDS);
        try {
            connect();
            Session.start("bccn writer", this::write);
            byte[] buffer = new byte[BUFFER];
            for (int size = 0; size >= 0; size = carrier.read(buffer)) {
                if (!take(buffer, size)) {
                    return reason;
                }
                if (isGreeted) {
                    limit.cancel(false);
                }
            }
            return ended("the door went away");
        } catch (IOException e) {
            return failed(e);
        } catch (BccnException e) {
            return e;
        } catch (RuntimeException e) { // nothing that the door says may end this thread
            return BccnException.protocol("the client has a fault: " + e);
        } finally {
            limit.cancel(false);
            session.lock.lock();
            try {
                isOver = true;
                wake.signalAll();
                session.changed.signalAll();
            } finally {
                session.lock.unlock();
            }
            carrier.close();
        }
    }

    private void connect() throws IOException {
        carrier.connect(session.options.timeout);
        session.lock.lock();
        try {
            endpoint = new Endpoint(System.nanoTime(), LIMITS);
            duplex = endpoint.openDuplex(BUS, session.options.window);
            greeting.addAll(session.greeting(this));
            pump();
            beatLater();
        } finally {
            session.lock.unlock();
        }
    }

    private BccnException ended(String text) {
        session.lock.lock();
        try {
            BccnException known = reason != null ? reason : farewell;
            return known != null ? known : new BccnException.Unavailable(text);
        } finally {
            session.lock.unlock();
        }
    }

    private BccnException failed(IOException e) {
        boolean isForbidden = e instanceof AccessDeniedException;
        boolean isAlert = e instanceof SSLException && e.getMessage() != null && e.getMessage().startsWith(ALERT);
        boolean isUntrusted = e instanceof SSLException && e.getCause() instanceof CertificateException;
        String text = isForbidden ? "no permission to connect to " + carrier
                : isUntrusted ? "the door at " + carrier + " does not prove that it is that: " + whyUntrusted(e.getCause())
                : isAlert ? "the door at " + carrier + " does not take our certificate: " + e.getMessage()
                : "no door at " + carrier + ": " + e.getMessage();
        BccnException known = ended(endpoint == null ? text : "the connection to the door broke: " + e.getMessage());
        return (isForbidden || isAlert) && reason == null && !isGreeted ? new BccnException.Rejected(Code.REFUSED, text) : known;
    }

    /** In the words of a person who could do something about it: those of Java name its classes. */
    private static String whyUntrusted(Throwable fault) {
        Throwable root = fault;
        while (root.getCause() != null) {
            root = root.getCause();
        }
        return root instanceof CertPathBuilderException
                ? "its certificate is of nobody that we trust; the option ca names whom we do" : root.getMessage();
    }

    /** The time for a greeting is over. */
    private void giveUp() {
        session.lock.lock();
        try {
            if (!isGreeted) {
                drop(new BccnException.Unavailable("the daemon does not answer"));
            }
        } finally {
            session.lock.unlock();
        }
    }

    /** Ends the link at once; under the lock. */
    void drop(BccnException why) {
        if (reason == null) {
            reason = why;
        }
        carrier.close();
    }

    // --- streams and questions, under the lock ---

    Channel openStream(byte[] question, User user) {
        return begin(endpoint.openStream(question, session.options.window), user);
    }

    Ask ask(byte[] question, User user) {
        return begin(endpoint.request(question), user);
    }

    private <T extends Entity> T begin(T entity, User user) {
        if (entity == null) {
            throw new BccnException.Unavailable("too much is open on this connection");
        }
        users.put(entity, user);
        wakeWriter();
        return entity;
    }

    /** Takes note that messages of a stream are dealt with. */
    void consumed(Channel channel, long size) {
        if (users.containsKey(channel)) {
            endpoint.consumed(channel, size);
            wakeWriter();
        }
    }

    /** Its user wants no more of it. */
    void leave(Entity entity) {
        if (users.remove(entity) != null) {
            endpoint.cancel(entity, Message.NOTHING);
            wakeWriter();
        }
    }

    private void tell(User user, Event event) {
        switch (event.kind()) {
            case MESSAGE -> user.said(event.payload());
            case RESPONDED -> {
                users.remove(event.entity());
                user.said(event.payload());
                user.ended(null);
            }
            case CLOSED -> {
                users.remove(event.entity());
                user.ended(event.payload().length == 0 ? null : told(event.payload()));
            }
            case REFUSED -> {
                users.remove(event.entity());
                user.ended(BccnException.protocol("the door sent more than " + Packets.LIMIT + " bytes at once"));
            }
            default -> { }
        }
    }

    /** Ends what is left of them: the link has ended. */
    void abandon(BccnException why) {
        users.values().forEach(user -> user.ended(why));
        users.clear();
    }

    /** Leaves the door once it has what was handed over; under the lock. */
    void leave() {
        if (endpoint == null || !isGreeted) {
            carrier.close();
            return;
        }
        isLeaving = true;
        endpoint.close(duplex, Message.NOTHING);
        grant();
        partWhenSaid();
    }

    /** A Cancel ends the session: so it goes behind all that was handed over, and behind the Close. */
    private void partWhenSaid() {
        if (isLeaving && duplex.queued() == 0) {
            endpoint.cancel(duplex, Message.NOTHING);
        }
        wakeWriter();
    }

    // --- what comes ---

    /** Takes what came; false at the end. */
    private boolean take(byte[] buffer, int size) {
        session.lock.lock();
        try {
            List<Event> events;
            BccnException fault = null;
            try {
                events = endpoint.receive(buffer, size, System.nanoTime());
            } catch (BpmuxException e) {
                events = endpoint.events();
                fault = BccnException.protocol("the door broke a rule: " + e.getMessage());
            }
            for (Event event : events) {
                happen(event);
            }
            reason = reason == null ? fault : reason;
            if (!isGreeted && session.asked.isEmpty() && reason == null) {
                session.greeted(this);
            }
            wakeWriter();
            return reason == null;
        } catch (BccnException e) {
            reason = e;
            return false;
        } finally {
            session.lock.unlock();
        }
    }

    private void happen(Event event) {
        User user = users.get(event.entity());
        if (user != null) {
            tell(user, event);
            return;
        }
        boolean isSession = event.entity() == duplex;
        switch (event.kind()) {
            case MESSAGE -> {
                if (isSession && reason == null) {
                    if (!isLeaving) {
                        session.receiver.packet(event.payload());
                    }
                    owed += event.payload().length;
                    grant();
                }
            }
            case CANCELLED -> isDeaf |= isSession;
            case CLOSED -> {
                if (isSession && reason == null) {
                    reason = told(event.payload());
                } else if (event.entity() == endpoint.top()) {
                    farewell = told(event.payload());
                }
            }
            case ENDED -> {
                if (isSession && reason == null) {
                    reason = new BccnException.Unavailable("the daemon went away");
                }
            }
            case REFUSED -> {
                if (isSession) {
                    reason = BccnException.protocol("the daemon sent more than " + Packets.LIMIT + " bytes at once");
                }
            }
            case OPENED, REQUESTED -> {
                endpoint.close(event.entity(), UNWANTED);
                endpoint.cancel(event.entity(), UNWANTED);
            }
            case SILENT -> drop(new BccnException.Unavailable("the door does not answer"));
            case FINISHED -> drop(farewell);
            default -> { }
        }
    }

    /** Returns the error that a Close has: a code, perhaps with a colon, and a text. */
    private static BccnException told(byte[] payload) {
        String text = new String(payload, UTF_8);
        int space = text.indexOf(' ');
        return space <= 0 ? new BccnException.Unavailable(text.isEmpty() ? "the daemon went away" : text)
                : BccnException.said(text.substring(0, space).replace(":", ""), text.substring(space + 1));
    }

    /** Lets the door send more, if the client has room for messages; under the lock. */
    void grant() {
        if (owed > 0 && session.hasRoom()) {
            long size = owed;
            owed = 0;
            endpoint.consumed(duplex, size);
            wakeWriter();
        }
    }

    // --- what goes ---

    /** Reports whether a packet may be sent; under the lock, as the functions below. */
    boolean hasRoom() {
        return !isDeaf && !isLeaving && greeting.isEmpty() && duplex.queued() < SEND_AHEAD;
    }

    /** Sends a packet when {@link #hasRoom}; one more may follow at once. */
    void send(byte[] packet) {
        if (packet.length > Packets.LIMIT) {
            throw new BccnException.Rejected(Code.TOO_LARGE, "packet: " + packet.length + " bytes, too many to send");
        }
        endpoint.send(duplex, packet);
        wakeWriter();
    }

    private void pump() {
        while (!greeting.isEmpty() && duplex.queued() < SEND_AHEAD) {
            endpoint.send(duplex, greeting.remove());
        }
    }

    private void wakeWriter() {
        if (endpoint.hasDataToSend()) {
            wake.signal();
        }
    }

    private void write() {
        try {
            for (byte[] data = dataToSend(); data != null; data = dataToSend()) {
                carrier.write(data);
            }
        } catch (IOException e) {
            return; // the reader says why
        } finally {
            carrier.close();
        }
    }

    /** Waits for something to send; null at the end. */
    private byte[] dataToSend() {
        session.lock.lock();
        try {
            while (!isOver && !endpoint.hasDataToSend()) {
                wake.awaitUninterruptibly();
            }
            if (isOver) {
                return null;
            }
            byte[] data = endpoint.dataToSend(BUFFER);
            for (Event event : endpoint.events()) {
                happen(event);
            }
            pump();
            partWhenSaid();
            if (hasRoom()) {
                session.calls.takeBackSoon(this);
                session.room.signalAll();
            }
            return data;
        } finally {
            session.lock.unlock();
        }
    }

    // --- heartbeats ---

    private void beatLater() {
        TIMERS.schedule(this::beat, endpoint.deadline() - System.nanoTime(), TimeUnit.NANOSECONDS);
    }

    private void beat() {
        session.lock.lock();
        try {
            if (!isOver) {
                for (Event event : endpoint.expire(System.nanoTime())) {
                    happen(event);
                }
                wakeWriter();
                beatLater();
            }
        } finally {
            session.lock.unlock();
        }
    }
}
