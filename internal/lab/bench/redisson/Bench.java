import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.Scanner;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.locks.LockSupport;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson as a contender. It reads requests on standard input, one per line, and answers each with a line:
 *
 * <ul>
 *   <li>{@code own THREADS MILLIS}: cycles with one lock per thread; answers cycles, nanoseconds
 *   <li>{@code hot THREADS MILLIS HOLD-MILLIS}: turns on one lock; turns, nanoseconds, p50 and p99 of the waiting in
 *       nanoseconds, fewest and most turns of a thread
 *   <li>{@code relay TURNS}: a lock passes between two clients; p50 and p99 in nanoseconds
 * </ul>
 *
 * Each answer begins with the CPU time of this process during the measurement, in nanoseconds.
 */
public final class Bench {
    private static RedissonClient one;
    private static RedissonClient other;

    public static void main(String[] args) throws Exception {
        one = connect(args[0]);
        other = connect(args[0]);
        System.out.println("ready");
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            String[] words = in.nextLine().split(" ");
            int n = Integer.parseInt(words[1]);
            System.out.println(switch (words[0]) {
                case "own" -> own(n, Long.parseLong(words[2]));
                case "hot" -> hot(n, Long.parseLong(words[2]), Long.parseLong(words[3]));
                case "relay" -> relay(n);
                default -> throw new IllegalArgumentException(words[0]);
            });
        }
        Runtime.getRuntime().halt(0); // nothing is left to clean up
    }

    private static RedissonClient connect(String address) {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://" + address);
        return Redisson.create(config);
    }

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private interface Cycle {
        void run(int thread) throws InterruptedException;
    }

    /** Runs cycles on threads for a while. Only the middle counts, while counting is set. */
    private static long[] together(int threads, long millis, AtomicBoolean counting, Cycle cycle) throws InterruptedException {
        AtomicBoolean stop = new AtomicBoolean();
        CountDownLatch ended = new CountDownLatch(threads);
        for (int i = 0; i < threads; i++) {
            int thread = i;
            new Thread(() -> {
                try {
                    while (!stop.get()) {
                        cycle.run(thread);
                    }
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                } finally {
                    ended.countDown();
                }
            }).start();
        }
        Thread.sleep(Math.min(millis, 500));
        long cpu = cpu();
        long began = System.nanoTime();
        counting.set(true);
        Thread.sleep(millis);
        counting.set(false);
        long[] used = {cpu() - cpu, System.nanoTime() - began};
        stop.set(true);
        ended.await();
        return used;
    }

    private static String own(int threads, long millis) throws InterruptedException {
        AtomicBoolean counting = new AtomicBoolean();
        AtomicLong cycles = new AtomicLong();
        RLock[] locks = new RLock[threads];
        Arrays.setAll(locks, i -> one.getLock("bench:redisson:" + i));
        long[] used = together(threads, millis, counting, thread -> {
            locks[thread].lock();
            locks[thread].unlock();
            if (counting.get()) {
                cycles.incrementAndGet();
            }
        });
        return used[0] + " " + cycles.get() + " " + used[1];
    }

    private static String hot(int threads, long millis, long hold) throws InterruptedException {
        AtomicBoolean counting = new AtomicBoolean();
        AtomicLongArray turns = new AtomicLongArray(threads);
        long[] waits = new long[1 << 20]; // written by the holder of the lock
        int[] n = {0};
        RLock lock = one.getLock("bench:redisson:hot");
        long[] used = together(threads, millis, counting, thread -> {
            long began = System.nanoTime();
            lock.lock();
            long waited = System.nanoTime() - began;
            if (hold > 0) {
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(hold));
            }
            if (counting.get() && n[0] < waits.length) {
                waits[n[0]++] = waited;
                turns.incrementAndGet(thread);
            }
            lock.unlock();
        });
        long fewest = Long.MAX_VALUE;
        long most = 0;
        for (int i = 0; i < threads; i++) {
            fewest = Math.min(fewest, turns.get(i));
            most = Math.max(most, turns.get(i));
        }
        return used[0] + " " + n[0] + " " + used[1] + " " + percentiles(Arrays.copyOf(waits, n[0])) + " " + fewest + " " + most;
    }

    @SuppressWarnings("unchecked") // an array of queues
    private static String relay(int turns) throws InterruptedException {
        RLock[] locks = {one.getLock("bench:redisson:relay"), other.getLock("bench:redisson:relay")};
        BlockingQueue<Boolean>[] orders = new BlockingQueue[] {new SynchronousQueue<Boolean>(), new SynchronousQueue<Boolean>()};
        BlockingQueue<Long> got = new SynchronousQueue<>();
        AtomicLong released = new AtomicLong();
        for (int i = 0; i < 2; i++) {
            RLock lock = locks[i];
            BlockingQueue<Boolean> order = orders[i];
            Thread holder = new Thread(() -> {
                try {
                    while (true) {
                        if (order.take()) {
                            lock.lock();
                            got.put(System.nanoTime());
                        } else {
                            released.set(System.nanoTime());
                            lock.unlock();
                        }
                    }
                } catch (InterruptedException e) {
                    // no longer needed
                }
            });
            holder.setDaemon(true);
            holder.start();
        }
        orders[0].put(true);
        got.take();
        long[] taken = new long[turns];
        long cpu = cpu();
        for (int i = 0; i < turns; i++) {
            orders[(i + 1) % 2].put(true);
            Thread.sleep(3); // let it wait
            orders[i % 2].put(false);
            taken[i] = got.take() - released.get();
        }
        long used = cpu() - cpu;
        orders[turns % 2].put(false);
        return used + " " + percentiles(taken);
    }

    private static String percentiles(long[] all) {
        Arrays.sort(all);
        return all.length == 0 ? "0 0" : all[all.length / 2] + " " + all[(int) Math.min(0.99 * all.length, all.length - 1)];
    }
}
