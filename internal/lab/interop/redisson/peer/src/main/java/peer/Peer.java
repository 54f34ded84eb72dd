package peer;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Stream;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.ReadMode;

/**
 * A Redisson client, or one for each of several masters, that reads requests on standard input and answers on standard output.
 *
 * <p>A request is a line {@code id thread command kind name argument...}; its answer is a line {@code id ok value...} or
 * {@code id error text}. A thread is created when it is first named, and executes its requests in order. Answers come in the
 * order in which requests end. The first line of output is {@code ready}. The process exits at the end of its input, even if
 * threads wait.
 *
 * <p>The reader answers {@code waits} and {@code stack} itself, because the thread in question is busy; see {@link Worker}.
 */
public final class Peer {
    private static final String SHARDED_MODE = "setShardedSubscriptionMode"; // from 3.28 on
    private static final String SHARDED = "setShardingSupported"; // from 3.22 on
    // The default of 7.5 s is too short for a machine that is busy with other tests: lock() then throws.
    private static final String SUBSCRIPTION_TIMEOUT = "setSubscriptionTimeout";
    private static final String NAME_MAPPER = "setNameMapper"; // per server from 3.16 on, global from 4.0 on
    private final Commands commands;
    private final PrintStream out;
    private final Map<String, Worker> workers = new ConcurrentHashMap<>();

    private Peer(List<RedissonClient> clients, PrintStream out) {
        this.commands = new Commands(clients);
        this.out = out;
    }

    /**
     * Arguments: {@code single}, {@code cluster}, {@code cluster-plain}, or independent {@code masters};
     * the watchdog timeout in milliseconds; the prefix that a NameMapper puts before names, {@code -} for none; and addresses.
     * The property {@code peer.ahead} is how far the clock of semaphores is ahead, in milliseconds.
     */
    public static void main(String[] args) throws IOException {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        if (SkewedClock.AHEAD != 0) {
            SkewedClock.install();
        }
        String topology = args[0];
        long watchdog = Long.parseLong(args[1]);
        String prefix = args[2];
        String[] addresses = Arrays.copyOfRange(args, 3, args.length);
        Stream<Config> configs = topology.equals("masters")
                ? Arrays.stream(addresses).map(address -> config("single", watchdog, prefix, address))
                : Stream.of(config(topology, watchdog, prefix, addresses));
        List<RedissonClient> clients = configs.map(Redisson::create).toList();
        if (topology.startsWith("cluster")) {
            clients.forEach(client -> chooseChannels(client, topology.equals("cluster")));
        }
        Peer peer = new Peer(clients, out);
        out.println("ready");
        peer.serve(new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)));
        Runtime.getRuntime().halt(0); // a normal shutdown would wait for threads that wait for locks
    }

    private static Config config(String topology, long watchdog, String prefix, String... addresses) {
        Config config = new Config();
        config.setThreads(8).setNettyThreads(4).setLockWatchdogTimeout(watchdog);
        config.setCodec(StringCodec.INSTANCE); // locks use no codec, and the default of old versions fails on Java 17
        Object servers = switch (topology) {
            case "single" -> config.useSingleServer().setAddress(addresses[0])
                    .setConnectionMinimumIdleSize(2).setConnectionPoolSize(16);
            case "cluster", "cluster-plain" -> config.useClusterServers().addNodeAddress(addresses)
                    .setReadMode(ReadMode.MASTER) // a replica may lag behind the counter
                    .setMasterConnectionMinimumIdleSize(2).setMasterConnectionPoolSize(16)
                    .setSlaveConnectionMinimumIdleSize(1).setSlaveConnectionPoolSize(4);
            default -> throw new IllegalArgumentException("unknown topology " + topology);
        };
        if (Late.has(servers, SUBSCRIPTION_TIMEOUT)) {
            Late.call(servers, SUBSCRIPTION_TIMEOUT, 60_000);
        }
        if (Late.has(servers, SHARDED_MODE)) {
            Class<?> modes = Late.parameter(servers, SHARDED_MODE);
            String mode = topology.equals("cluster") ? "AUTO" : "OFF";
            Late.call(servers, SHARDED_MODE, Arrays.stream(modes.getEnumConstants())
                    .filter(constant -> constant.toString().equals(mode)).findFirst().orElseThrow());
        }
        if (!prefix.equals("-")) {
            Object owner = Late.has(config, NAME_MAPPER) ? config : servers;
            Class<?> mapper = Late.parameter(owner, NAME_MAPPER);
            Late.call(owner, NAME_MAPPER, Proxy.newProxyInstance(mapper.getClassLoader(), new Class<?>[] {mapper},
                    (proxy, method, names) -> method.getName().equals("map")
                            ? prefix + names[0]
                            : names[0].toString().substring(prefix.length())));
        }
        return config;
    }

    /**
     * Chooses sharded or plain channels where Redisson chooses at random. From 3.22 to 3.27 it uses sharded ones if the first node
     * it asks owns slot 0, and plain ones otherwise.
     */
    private static void chooseChannels(RedissonClient client, boolean sharded) {
        if (Late.has(client.getConfig().useClusterServers(), SHARDED_MODE)) {
            return;
        }
        Object channels = Late.call(Late.call(Late.call(client, "getCommandExecutor"), "getConnectionManager"), "getSubscribeService");
        if (Late.has(channels, SHARDED)) {
            Late.call(channels, SHARDED, sharded);
        }
    }

    private void serve(BufferedReader in) throws IOException {
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            String id = words[0];
            Worker worker = workers.computeIfAbsent(words[1], Worker::new);
            String command = words[2];
            String[] args = Arrays.copyOfRange(words, 3, words.length);
            if (command.equals("waits")) {
                out.println(id + " ok " + worker.waits());
            } else if (command.equals("stack")) {
                out.println(id + " ok " + worker.stack());
            } else {
                worker.submit(() -> answer(id, command, args));
            }
        }
    }

    private void answer(String id, String command, String[] args) {
        String answer;
        try {
            answer = " ok " + commands.run(command, args);
        } catch (Exception e) {
            answer = " error " + e.toString().replaceAll("\\s+", " ");
        }
        out.println(id + answer); // one call, so that lines of several threads do not mix
    }
}
