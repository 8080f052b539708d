package bccn.bpmux;

import java.util.HashMap;
import java.util.Map;
import java.util.PriorityQueue;

/** What there is on a connection, by who opened it. Whatever is over is in none of them. */
final class Tables {
    final Channel top = new Channel(Chunks.TOP, Chunks.DUPLEX, true);
    final Map<Long, Channel> ours = new HashMap<>();
    final Map<Long, Channel> theirs = new HashMap<>();
    final Map<Long, Ask> asked = new HashMap<>(); // by us
    final Map<Long, Ask> requests = new HashMap<>(); // by the peer
    int refused;
    private final Ids channelIds = new Ids();
    private final Ids requestIds = new Ids();

    /** The lowest first, so that they stay narrow; one that was given back may be given again. */
    private static final class Ids {
        private final PriorityQueue<Long> free = new PriorityQueue<>();
        private long next;

        long take() {
            return free.isEmpty() ? next++ : free.remove();
        }

        void giveBack(long id) {
            free.add(id);
        }
    }

    Tables() {
        top.isOpen = true;
    }

    Channel newChannel(int kind) {
        Channel channel = new Channel(channelIds.take(), kind, true);
        ours.put(channel.id, channel);
        return channel;
    }

    Ask newRequest() {
        Ask request = new Ask(requestIds.take(), true);
        asked.put(request.id, request);
        return request;
    }

    void remove(Entity entity) {
        boolean isChannel = entity instanceof Channel;
        (isChannel ? entity.ours ? ours : theirs : entity.ours ? asked : requests).remove(entity.id);
        if (entity.isRefused) {
            refused--;
        }
        if (entity.ours) {
            (isChannel ? channelIds : requestIds).giveBack(entity.id);
        }
    }
}
