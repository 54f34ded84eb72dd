package peer;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/** What a thread can be told to do. Durations are milliseconds; a lease of -1 leaves the lock to the watchdog. */
final class Commands {
    private static final long FOR_EVER = TimeUnit.DAYS.toMillis(1);

    private final List<RedissonClient> clients; // several: one for each master
    private final Map<String, RLock> locks = new ConcurrentHashMap<>(); // a lock object may have state that its threads share

    Commands(List<RedissonClient> clients) {
        this.clients = clients;
    }

    /** Arguments: kind of lock, its name, and what the command needs. {@code kind@n} is a lock of client n, of several. */
    String run(String command, String[] args) throws InterruptedException {
        RLock lock = locks.computeIfAbsent(args[0] + " " + args[1], key -> lock(args[0], args[1]));
        switch (command) {
            case "lock":
                return lock(args[0], lock, Long.parseLong(args[2]));
            case "tryLock":
                return tryLock(args[0], lock, Long.parseLong(args[2]), Long.parseLong(args[3]));
            case "unlock":
                lock.unlock();
                return "";
            case "forceUnlock":
                return "" + lock.forceUnlock();
            case "isLocked":
                return "" + lock.isLocked();
            case "isHeld":
                return "" + lock.isHeldByCurrentThread();
            case "holdCount":
                return "" + lock.getHoldCount();
            case "ttl":
                return "" + lock.remainTimeToLive();
            case "token":
                return "" + Late.call(lock, "getToken");
            case "hammer":
                return hammer(args[0], lock, Long.parseLong(args[2]), Integer.parseInt(args[3]), args[4]);
            default:
                throw new IllegalArgumentException("unknown command " + command);
        }
    }

    @SuppressWarnings("deprecation") // of getRedLock; it is still what there is for masters that know nothing of each other
    private RLock lock(String kind, String name) {
        String[] parts = kind.split("@");
        RedissonClient redisson = clients.get(parts.length == 1 ? 0 : Integer.parseInt(parts[1]));
        return switch (parts[0]) {
            case "lock" -> redisson.getLock(name);
            case "fair" -> redisson.getFairLock(name);
            case "read" -> redisson.getReadWriteLock(name).readLock();
            case "write" -> redisson.getReadWriteLock(name).writeLock();
            case "fenced" -> (RLock) Late.call(redisson, "getFencedLock", name);
            case "spin" -> (RLock) Late.call(redisson, "getSpinLock", name);
            case "multi" -> redisson.getMultiLock(members(name));
            case "red" -> redisson.getRedLock(members(name));
            default -> throw new IllegalArgumentException("unknown kind " + kind);
        };
    }

    /** The locks of several as one: one of each client; or of the only one, with hash tags for each master of a cluster. */
    private RLock[] members(String name) {
        Stream<RLock> members = clients.size() > 1
                ? clients.stream().map(client -> client.getLock(name))
                : Stream.of("{a}", "{b}", "{c}").map(tag -> clients.get(0).getLock(tag + name));
        return members.toArray(RLock[]::new);
    }

    /** The answer is the token of a fenced lock, and empty for other kinds. */
    private static String lock(String kind, RLock lock, long lease) {
        if (kind.equals("fenced")) {
            return "" + (lease < 0 ? Late.call(lock, "lockAndGetToken")
                    : Late.call(lock, "tryLockAndGetToken", FOR_EVER, lease, MILLISECONDS)); // lockAndGetToken ignores a lease
        }
        lock.lock(lease, MILLISECONDS);
        return "";
    }

    /** The answer is false; or true, and the token of a fenced lock. */
    private static String tryLock(String kind, RLock lock, long wait, long lease) throws InterruptedException {
        if (kind.equals("fenced")) {
            Object token = Late.call(lock, "tryLockAndGetToken", wait, lease, MILLISECONDS);
            return token == null ? "false" : "true " + token;
        }
        return "" + lock.tryLock(wait, lease, MILLISECONDS);
    }

    /**
     * Adds one to a number in Redis, by reading and writing it, so many times, each time under the lock; beneath a read lock
     * it reads the number twice instead. Somebody else under the lock makes the sum too small, or the two reads differ.
     */
    private String hammer(String kind, RLock lock, long lease, int rounds, String key) {
        RBucket<String> number = clients.get(0).getBucket(key, StringCodec.INSTANCE);
        for (int i = 0; i < rounds; i++) {
            lock.lock(lease, MILLISECONDS);
            try {
                String before = number.get();
                if (!kind.equals("read")) {
                    number.set("" + (Long.parseLong(before) + 1));
                } else if (!before.equals(number.get())) {
                    throw new IllegalStateException("somebody wrote under a read lock, in round " + i);
                }
            } finally {
                lock.unlock();
            }
        }
        return "";
    }
}
