package bccn.bpmux;

import java.util.Arrays;

/** A string of bytes that grows. */
final class Bytes {
    private byte[] data;
    private int size;

    Bytes(int capacity) {
        data = new byte[capacity];
    }

    int size() {
        return size;
    }

    void add(int value) {
        reserve(1);
        data[size++] = (byte) value;
    }

    void add(byte[] source, int from, int length) {
        reserve(length);
        System.arraycopy(source, from, data, size, length);
        size += length;
    }

    /** Appends a number, big-endian, in so many bytes. */
    void add(long number, int width) {
        for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) {
            add((int) (number >>> shift));
        }
    }

    byte[] copy() {
        return Arrays.copyOf(data, size);
    }

    /** Returns what is there, and begins anew. */
    byte[] take() {
        byte[] taken = copy();
        size = 0;
        return taken;
    }

    private void reserve(int more) {
        if (data.length - size < more) {
            data = Arrays.copyOf(data, Math.max(2 * data.length, size + more));
        }
    }
}
