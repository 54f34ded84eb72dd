package peer;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;

/**
 * The commands for semaphores whose permits expire. Durations are in milliseconds; a lease of -1 never ends. Permits are named by
 * their ids, separated by commas.
 */
final class Permits {
    private final RedissonClient client;
    private final Map<String, String> held = new ConcurrentHashMap<>(); // by thread and name; permits of lock

    Permits(RedissonClient client) {
        this.client = client;
    }

    /** Arguments: the name, and those of the command. */
    String run(String command, String name, String[] args) throws InterruptedException {
        RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(name);
        String holder = Thread.currentThread().getName() + " " + name;
        switch (command) {
            case "lock": // as a lock: one permit in all, and the thread remembers that it has it
                semaphore.trySetPermits(1);
                held.put(holder, acquire(semaphore, Long.parseLong(args[0]), 1));
                return "";
            case "unlock":
                semaphore.release(held.remove(holder));
                return "";
            case "acquire":
                return acquire(semaphore, Long.parseLong(args[0]), Integer.parseInt(args[1]));
            case "tryAcquire":
                return tryAcquire(semaphore, Long.parseLong(args[0]), Long.parseLong(args[1]), Integer.parseInt(args[2]));
            case "release":
                release(semaphore, args[0]);
                return "";
            case "tryRelease":
                return "" + semaphore.tryRelease(args[0]);
            case "setPermits":
                Late.call(semaphore, "setPermits", Integer.parseInt(args[0]));
                return "";
            case "trySetPermits":
                return "" + semaphore.trySetPermits(Integer.parseInt(args[0]));
            case "addPermits":
                semaphore.addPermits(Integer.parseInt(args[0]));
                return "";
            case "availablePermits":
                return "" + semaphore.availablePermits();
            case "getPermits":
                return "" + Late.call(semaphore, "getPermits");
            case "updateLeaseTime":
                return "" + semaphore.updateLeaseTime(args[0], Long.parseLong(args[1]), MILLISECONDS);
            case "hammer":
                return hammer(semaphore, Long.parseLong(args[0]), Long.parseLong(args[1]), Long.parseLong(args[2]), args[3]);
            default:
                throw new IllegalArgumentException("unknown command " + command);
        }
    }

    private static String acquire(RPermitExpirableSemaphore semaphore, long lease, int permits) throws InterruptedException {
        if (permits == 1) {
            return lease < 0 ? semaphore.acquire() : semaphore.acquire(lease, MILLISECONDS);
        }
        return text(lease < 0 ? Late.call(semaphore, "acquire", permits) : Late.call(semaphore, "acquire", permits, lease, MILLISECONDS));
    }

    /** Answers with nothing if it is refused. */
    private static String tryAcquire(RPermitExpirableSemaphore semaphore, long wait, long lease, int permits) throws InterruptedException {
        if (permits == 1) {
            return text(semaphore.tryAcquire(wait, lease, MILLISECONDS));
        }
        return text(Late.call(semaphore, "tryAcquire", permits, wait, lease, MILLISECONDS));
    }

    private static void release(RPermitExpirableSemaphore semaphore, String ids) {
        String[] all = ids.split(",");
        if (all.length == 1) {
            semaphore.release(ids);
        } else {
            Late.call(semaphore, "release", List.of(all));
        }
    }

    private static String text(Object ids) {
        if (ids instanceof List<?> list) {
            return String.join(",", list.stream().map(Object::toString).toList());
        }
        return ids == null ? "" : ids.toString();
    }

    /**
     * Takes a permit, counts itself in and out, and gives it back, for as long as it is told. It answers with the number of
     * permits that it had, and fails if more are in than there are permits.
     */
    private String hammer(RPermitExpirableSemaphore semaphore, long lease, long duration, long permits, String key)
            throws InterruptedException {
        RAtomicLong inside = client.getAtomicLong(key);
        int rounds = 0;
        for (long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(duration); System.nanoTime() - end < 0; rounds++) {
            String id = semaphore.acquire(lease, MILLISECONDS);
            long in = inside.incrementAndGet();
            inside.decrementAndGet();
            semaphore.release(id);
            if (in > permits) {
                throw new IllegalStateException(in + " are in with " + permits + " permits");
            }
        }
        return "" + rounds;
    }
}
