package bccn.bpmux;

import java.util.ArrayDeque;
import java.util.Set;

/** Payloads that go out one behind the other. */
final class Lane {
    record Item(int kind, byte[] payload) {}

    final Entity entity;
    final ArrayDeque<Item> items = new ArrayDeque<>();
    int at; // how much of the first is sent
    boolean announced;
    long size; // of what waits
    Set<Lane> place; // where it waits for its turn or for credit; null if it has nothing to send

    Lane(Entity entity) {
        this.entity = entity;
    }
}
