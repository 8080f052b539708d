package bccn;

import bccn.bpmux.EndpointChecks;
import java.nio.file.Path;

/** All tests. They are given a folder with certificates and the address of a door by TLS; $BCCN_CONNECT is another. */
final class AllChecks {
    private AllChecks() {}

    public static void main(String[] arguments) throws Exception {
        EndpointChecks.run();
        PacketChecks.run();
        CarrierChecks.run(Path.of(arguments[0]), arguments[1]);
        LiveChecks.run();
        WatchChecks.run();
        Checks.end();
    }
}
