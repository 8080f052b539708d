package bccn;

import bccn.bpmux.EndpointChecks;
import java.nio.file.Path;

/** All tests. They are given a folder with a certificate, and a door with a daemon at $BCCN_CONNECT. */
final class AllChecks {
    private AllChecks() {}

    public static void main(String[] arguments) throws Exception {
        EndpointChecks.run();
        PacketChecks.run();
        CarrierChecks.run(Path.of(arguments[0]));
        LiveChecks.run();
        Checks.end();
    }
}
