package bccn;

import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.file.AccessDeniedException;
import java.nio.file.NoSuchFileException;
import java.security.GeneralSecurityException;
import java.time.Duration;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/** TCP with TLS. Both sides show certificates; that of the door must have its name. */
final class TlsCarrier implements Carrier {
    private final String host;
    private final int port;
    private final Options options;
    private final Socket socket = new Patient();
    private volatile boolean isHeard; // the door has sent something after the handshake, or has ended
    private InputStream in;
    private OutputStream out;

    TlsCarrier(String host, int port, Options options) {
        this.host = host;
        this.port = port;
        this.options = options;
    }

    @Override
    public void connect(Duration timeout) throws IOException {
        SSLContext context;
        try {
            context = options.context != null ? options.context : Pem.context(options.ca, options.cert, options.key);
        } catch (NoSuchFileException e) {
            throw BccnException.invalid("TLS: there is no file " + e.getMessage());
        } catch (AccessDeniedException e) {
            throw BccnException.invalid("TLS: no permission to read " + e.getMessage());
        } catch (GeneralSecurityException | IOException e) {
            throw BccnException.invalid("TLS, certificates and key: " + e.getMessage());
        }
        int milliseconds = (int) Math.max(1, Math.min(timeout.toMillis(), Integer.MAX_VALUE));
        socket.connect(new InetSocketAddress(host, port), milliseconds);
        socket.setTcpNoDelay(true);
        socket.setSoTimeout(milliseconds);
        String name = options.serverName.isEmpty() ? host : options.serverName;
        SSLSocket secured = (SSLSocket) context.getSocketFactory().createSocket(socket, name, port, true);
        SSLParameters parameters = secured.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        parameters.setProtocols(new String[] {"TLSv1.3"});
        secured.setSSLParameters(parameters);
        secured.startHandshake();
        socket.setSoTimeout(0);
        in = secured.getInputStream();
        out = secured.getOutputStream();
    }

    @Override
    public int read(byte[] buffer) throws IOException {
        try {
            return in.read(buffer);
        } finally {
            isHeard = true;
        }
    }

    /**
     * A door that refuses a certificate says so and hangs up, perhaps before everything is written to it. Until it was
     * read from, a write that fails is no error: the reader then hears why.
     */
    private final class Patient extends Socket {
        @Override
        public OutputStream getOutputStream() throws IOException {
            return new FilterOutputStream(super.getOutputStream()) {
                @Override
                public void write(byte[] data, int from, int size) throws IOException {
                    try {
                        out.write(data, from, size);
                    } catch (IOException e) {
                        if (isHeard) {
                            throw e;
                        }
                    }
                }
            };
        }
    }

    @Override
    public void write(byte[] data) throws IOException {
        out.write(data);
        out.flush();
    }

    /** Closes the socket below TLS: a close of TLS would wait for a write that is under way. */
    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException e) {
            // it is of no use any more, whatever became of it
        }
    }

    @Override
    public String toString() {
        return "tls://" + host + ":" + port;
    }
}
