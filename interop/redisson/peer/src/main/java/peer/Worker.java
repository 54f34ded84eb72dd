package peer;

import java.util.Arrays;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;

/** A thread with a name. It is always the same thread, since that is who owns what is locked in it. */
final class Worker {
    private volatile Thread thread;
    private final ExecutorService executor;

    Worker(String name) {
        executor = Executors.newSingleThreadExecutor(task -> thread = new Thread(task, name));
    }

    void submit(Runnable task) {
        executor.execute(task);
    }

    /** Whether the thread waits for a lock: on a semaphore, until a release is announced; a spin lock just sleeps. */
    boolean parked() {
        Thread t = thread;
        return t != null && Arrays.stream(t.getStackTrace())
                .anyMatch(frame -> frame.getClassName().equals(Semaphore.class.getName())
                        || frame.getClassName().equals(Thread.class.getName()) && frame.getMethodName().equals("sleep"));
    }
}
