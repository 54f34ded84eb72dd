package peer;

import static net.bytebuddy.matcher.ElementMatchers.any;
import static net.bytebuddy.matcher.ElementMatchers.named;

import java.lang.invoke.MethodHandles;
import net.bytebuddy.ByteBuddy;
import net.bytebuddy.ClassFileVersion;
import net.bytebuddy.asm.MemberSubstitution;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.dynamic.loading.ClassLoadingStrategy;
import net.bytebuddy.pool.TypePool;
import org.redisson.Redisson;

/** A clock that is ahead of that of the machine. */
public final class SkewedClock {
    /** In milliseconds. */
    static final long AHEAD = Long.getLong("peer.ahead", 0);

    private SkewedClock() {}

    public static long now() {
        return System.currentTimeMillis() + AHEAD;
    }

    /**
     * Makes semaphores read this clock, as if that of the machine were wrong. Call it before Redisson uses one. The class is
     * defined here with its calls replaced, and so needs no agent.
     */
    static void install() {
        ClassLoader loader = Redisson.class.getClassLoader();
        ClassFileLocator locator = ClassFileLocator.ForClassLoader.of(loader);
        try {
            new ByteBuddy(ClassFileVersion.JAVA_V8)
                    .redefine(TypePool.Default.of(locator).describe("org.redisson.RedissonPermitExpirableSemaphore").resolve(), locator)
                    .visit(MemberSubstitution.relaxed().method(named("currentTimeMillis"))
                            .replaceWith(SkewedClock.class.getMethod("now")).on(any()))
                    .make()
                    .load(loader, ClassLoadingStrategy.UsingLookup.of(
                            MethodHandles.privateLookupIn(Redisson.class, MethodHandles.lookup())));
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }
}
