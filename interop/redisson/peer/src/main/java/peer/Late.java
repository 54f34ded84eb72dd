package peer;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;

/** Calls methods by name, so that the peer compiles against versions of Redisson that lack them. */
final class Late {
    private Late() {}

    static boolean has(Object target, String name) {
        return Arrays.stream(target.getClass().getMethods()).anyMatch(method -> method.getName().equals(name));
    }

    /** Returns the public method of that name and number of parameters. */
    static Method method(Object target, String name, int parameters) {
        return Arrays.stream(target.getClass().getMethods())
                .filter(method -> method.getName().equals(name) && method.getParameterCount() == parameters && !method.isBridge())
                .findFirst()
                .orElseThrow(() -> new UnsupportedOperationException(target.getClass().getName() + " has no method " + name));
    }

    static Object call(Object target, String name, Object... args) {
        try {
            return method(target, name, args.length).invoke(target, args);
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof RuntimeException cause) {
                throw cause;
            }
            throw new IllegalStateException(e.getCause());
        } catch (IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
    }
}
