package peer;

import java.util.Arrays;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;

/** A named thread. It is always the same thread, because the thread owns the locks it acquires. */
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
     * Reports whether the thread waits for a lock: {@code no}; {@code yes}, on a semaphore until a release is announced or its
     * time is over, or asleep for a spin lock; {@code for a message}, on a semaphore without a timeout.
     */
    String waits() {
        for (StackTraceElement frame : frames()) {
            String method = frame.getMethodName();
            if (frame.getClassName().equals(Semaphore.class.getName())) {
                // Before it subscribes, the thread is in the constructor for a moment.
                if (method.equals("tryAcquire")) {
                    return "yes";
                }
                if (method.startsWith("acquire")) {
                    return "for a message";
                }
            }
            if (frame.getClassName().equals(Thread.class.getName()) && method.equals("sleep")) {
                return "yes";
            }
        }
        return "no";
    }

    /** Returns where the thread is, innermost frame first. */
    String stack() {
        return Arrays.toString(frames());
    }

    private StackTraceElement[] frames() {
        Thread t = thread;
        return t == null ? new StackTraceElement[0] : t.getStackTrace();
    }
}
