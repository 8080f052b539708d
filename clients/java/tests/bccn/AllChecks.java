package bccn;

import bccn.bpmux.EndpointChecks;

/** The tests that need no daemon. */
final class AllChecks {
    private AllChecks() {}

    public static void main(String[] arguments) throws Exception {
        EndpointChecks.run();
        PacketChecks.run();
        Checks.end();
    }
}
