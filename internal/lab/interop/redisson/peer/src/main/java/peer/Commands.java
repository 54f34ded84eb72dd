package peer;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.redisson.api.RBucket;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/** The commands of a thread. Durations are in milliseconds; a lease of -1 leaves the lock to the watchdog. */
final class Commands {
    private static final long FOR_EVER = TimeUnit.DAYS.toMillis(1);

    private final List<RedissonClient> clients; // one for each independent master
    private final List<Permits> permits;
    private final Map<String, RLock> locks = new ConcurrentHashMap<>(); // threads may share the state of a lock object

    Commands(List<RedissonClient> clients) {
        this.clients = clients;
        this.permits = clients.stream().map(Permits::new).toList();
    }

    /**
     * Arguments: lock kind, name, and those of the command. {@code kind@n} is a lock of client n. Those of semaphores are in
     * {@link Permits}. The commands of latches have no kind.
     */
    String run(String command, String[] args) throws InterruptedException {
        if (args[0].equals("semaphore")) {
            return permits.get(0).run(command, args[1], Arrays.copyOfRange(args, 2, args.length));
        }
        if (command.startsWith("latch")) {
            return latch(command, clients.get(0).getCountDownLatch(args[0]), args);
        }
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

    private static String latch(String command, RCountDownLatch latch, String[] args) throws InterruptedException {
        switch (command) {
            case "latchSet":
                return "" + latch.trySetCount(Long.parseLong(args[1]));
            case "latchCountDown":
                latch.countDown();
                return "";
            case "latchCount":
                return "" + latch.getCount();
            case "latchAwait":
                latch.await();
                return "";
            case "latchDelete":
                return "" + latch.delete();
            default:
                throw new IllegalArgumentException("unknown command " + command);
        }
    }

    @SuppressWarnings("deprecation") // getRedLock is still the only lock for independent masters
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

    /** Returns the members of a combined lock: one per client, or with a hash tag for each master of a cluster. */
    private RLock[] members(String name) {
        Stream<RLock> members = clients.size() > 1
                ? clients.stream().map(client -> client.getLock(name))
                : Stream.of("{a}", "{b}", "{c}").map(tag -> clients.get(0).getLock(tag + name));
        return members.toArray(RLock[]::new);
    }

    /** Answers with the token of a fenced lock, or nothing for other kinds. */
    private static String lock(String kind, RLock lock, long lease) {
        if (kind.equals("fenced")) {
            return "" + (lease < 0 ? Late.call(lock, "lockAndGetToken")
                    : Late.call(lock, "tryLockAndGetToken", FOR_EVER, lease, MILLISECONDS)); // lockAndGetToken ignores a lease
        }
        lock.lock(lease, MILLISECONDS);
        return "";
    }

    /** Answers with false, or with true and the token of a fenced lock. */
    private static String tryLock(String kind, RLock lock, long wait, long lease) throws InterruptedException {
        if (kind.equals("fenced")) {
            Object token = Late.call(lock, "tryLockAndGetToken", wait, lease, MILLISECONDS);
            return token == null ? "false" : "true " + token;
        }
        return "" + lock.tryLock(wait, lease, MILLISECONDS);
    }

    /**
     * Increments a number in Redis several times by reading and writing it under the lock. Under a read lock it reads the
     * number twice instead. If the lock does not exclude, the sum is too small or the two reads differ.
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
