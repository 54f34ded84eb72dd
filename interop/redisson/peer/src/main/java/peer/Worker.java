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

    /**
     * How the thread waits for a lock: {@code no}, it has something else to do; {@code yes}, on a semaphore, until a release is
     * announced or its time is over, or, for a spin lock, asleep; {@code for a message}, on a semaphore without a time.
     */
    String waits() {
        Thread t = thread;
        for (StackTraceElement frame : t == null ? new StackTraceElement[0] : t.getStackTrace()) {
            if (frame.getClassName().equals(Semaphore.class.getName())) {
                return frame.getMethodName().startsWith("tryAcquire") ? "yes" : "for a message";
            }
            if (frame.getClassName().equals(Thread.class.getName()) && frame.getMethodName().equals("sleep")) {
                return "yes";
            }
        }
        return "no";
    }
}
