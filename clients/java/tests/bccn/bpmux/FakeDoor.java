package bccn.bpmux;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.function.Function;

/** The other side of a connection: a door whose daemon says what a test wants. */
public final class FakeDoor {
    private FakeDoor() {}

    /** Serves one connection to its end. A session is refused with {@code refusal}, unless that is null. */
    public static void serve(InputStream in, OutputStream out, byte[] refusal, Function<byte[], byte[]> answer)
            throws IOException, BpmuxException {
        Endpoint endpoint = new Endpoint(System.nanoTime(), Limits.USUAL);
        byte[] buffer = new byte[65536];
        int size = 0;
        while (size >= 0) {
            for (Event event : endpoint.receive(buffer, size, System.nanoTime())) {
                if (event.kind() == Event.Kind.OPENED && refusal != null) {
                    endpoint.close(event.entity(), refusal);
                    endpoint.cancel(event.entity(), refusal);
                } else if (event.kind() == Event.Kind.OPENED) {
                    endpoint.grant((Channel) event.entity(), 65536);
                } else if (event.kind() == Event.Kind.MESSAGE) {
                    byte[] said = answer.apply(event.payload());
                    if (said != null) {
                        endpoint.send((Channel) event.entity(), said);
                    }
                } else if (event.kind() == Event.Kind.CLOSED) {
                    endpoint.close(event.entity(), new byte[0]);
                }
            }
            while (endpoint.hasDataToSend()) {
                out.write(endpoint.dataToSend(65536));
                out.flush();
            }
            size = in.read(buffer);
        }
    }

    /** Opens a session as a client does, and says more than there is credit for. */
    public static byte[] beyondItsCredit() {
        Bytes bytes = new Bytes(0);
        Chunks.head(bytes, Chunks.CREDIT, Chunks.TOP, 65536);
        Chunks.head(bytes, Chunks.MESSAGE, Chunks.TOP, 1 << 20);
        return bytes.take();
    }
}
