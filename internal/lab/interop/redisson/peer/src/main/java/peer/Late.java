package peer;

import java.lang.invoke.MethodType;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;

/** Calls methods by name, so that the peer compiles against versions of Redisson that lack them. */
final class Late {
    private Late() {}

    static boolean has(Object target, String name) {
        return Arrays.stream(target.getClass().getMethods()).anyMatch(method -> method.getName().equals(name));
    }

    /** Returns the parameter type of a method with one parameter and no overloads. */
    static Class<?> parameter(Object target, String name) {
        return Arrays.stream(target.getClass().getMethods())
                .filter(m -> m.getName().equals(name) && m.getParameterCount() == 1 && !m.isBridge())
                .findFirst()
                .orElseThrow(() -> missing(target, name))
                .getParameterTypes()[0];
    }

    static Object call(Object target, String name, Object... args) {
        Method method = Arrays.stream(target.getClass().getMethods())
                .filter(m -> m.getName().equals(name) && accepts(m.getParameterTypes(), args))
                .findFirst()
                .orElseThrow(() -> missing(target, name));
        try {
            return method.invoke(target, args);
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof RuntimeException cause) {
                throw cause;
            }
            throw new IllegalStateException(e.getCause());
        } catch (IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
    }

    private static boolean accepts(Class<?>[] parameters, Object[] args) {
        if (parameters.length != args.length) {
            return false;
        }
        for (int i = 0; i < args.length; i++) {
            if (!MethodType.methodType(parameters[i]).wrap().returnType().isInstance(args[i])) {
                return false;
            }
        }
        return true;
    }

    private static UnsupportedOperationException missing(Object target, String name) {
        return new UnsupportedOperationException(target.getClass().getName() + " has no such method " + name);
    }
}
