package bccn;

import java.io.IOException;
import java.net.SocketException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.AccessDeniedException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.time.Duration;

/**
 * What brings bytes to the door and back, in order. One thread reads and another writes; any may close, which ends
 * both. None of these threads is the program's: an interrupt would close the socket.
 */
interface Carrier {
    /** Connects, within about so long. A carrier that was closed before fails. */
    void connect(Duration timeout) throws IOException;

    /** Returns how many bytes came, -1 at the end. */
    int read(byte[] buffer) throws IOException;

    void write(byte[] data) throws IOException;

    void close();

    /** Returns a carrier to the address of the options, or to the usual place. */
    static Carrier to(Options options) {
        String address = address(options.address);
        if (address.startsWith("unix:")) {
            try {
                return new Unix(Path.of(address.substring("unix:".length())));
            } catch (InvalidPathException e) {
                throw BccnException.invalid("address: " + e.getMessage());
            }
        }
        if (address.startsWith("tls://")) {
            String place = address.substring("tls://".length());
            int colon = place.lastIndexOf(':');
            try {
                int port = Integer.parseInt(place.substring(colon + 1));
                String host = place.substring(0, Math.max(colon, 0));
                if (!host.isEmpty() && port > 0 && port < 1 << 16) {
                    boolean hasBrackets = host.startsWith("[") && host.endsWith("]");
                    return new TlsCarrier(hasBrackets ? host.substring(1, host.length() - 1) : host, port, options);
                }
            } catch (NumberFormatException e) {
                // the address is said to be wrong below
            }
        }
        throw BccnException.invalid("address \"" + address + "\": must be unix:PATH or tls://HOST:PORT");
    }

    /** Returns the address, or that of the environment, or the first usual place that exists. */
    private static String address(String address) {
        if (!address.isEmpty()) {
            return address;
        }
        String told = System.getenv("BCCN_CONNECT");
        if (told != null && !told.isEmpty()) {
            return told;
        }
        String own = System.getenv("XDG_RUNTIME_DIR") + "/bccnd/mux.sock";
        return "unix:" + (own.startsWith("/") && Files.exists(Path.of(own)) ? own : "/run/bccnd/mux.sock");
    }

    /** A Unix stream socket. */
    final class Unix implements Carrier {
        private final Path path;
        private volatile SocketChannel socket;
        private volatile boolean isClosed;
        private ByteBuffer in = ByteBuffer.allocate(0);

        Unix(Path path) {
            this.path = path;
        }

        @Override
        public void connect(Duration timeout) throws IOException {
            socket = SocketChannel.open(StandardProtocolFamily.UNIX);
            if (isClosed) {
                close();
            }
            try {
                socket.connect(UnixDomainSocketAddress.of(path)); // the caller closes it when that takes too long
            } catch (SocketException e) {
                if ("Protocol wrong type for socket".equals(e.getMessage())) { // EPROTOTYPE
                    throw new SocketException("it is the socket of a daemon: name that of its door, bccnd-mux");
                }
                throw Files.exists(path) && !Files.isWritable(path) ? new AccessDeniedException(path.toString()) : e;
            }
        }

        @Override
        public int read(byte[] buffer) throws IOException {
            if (!in.hasArray() || in.array() != buffer) {
                in = ByteBuffer.wrap(buffer);
            }
            in.clear();
            return socket.read(in);
        }

        @Override
        public void write(byte[] data) throws IOException {
            ByteBuffer out = ByteBuffer.wrap(data);
            while (out.hasRemaining()) {
                socket.write(out);
            }
        }

        @Override
        public void close() {
            isClosed = true;
            try {
                if (socket != null) {
                    socket.close();
                }
            } catch (IOException e) {
                // it is of no use any more, whatever became of it
            }
        }

        @Override
        public String toString() {
            return "unix:" + path;
        }
    }
}
