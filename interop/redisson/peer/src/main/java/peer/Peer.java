package peer;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Stream;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.ReadMode;
import org.redisson.config.ShardedSubscriptionMode;

/**
 * A Redisson client, or one for each of several masters, that does what it is told on standard input and answers on standard output.
 *
 * <p>A request is a line {@code id thread command kind name argument...}; its answer is a line {@code id ok value...} or
 * {@code id error text}. Each thread is made when it is first named, and does one request after another; answers come in the
 * order in which requests end. The first line of the output says {@code ready}. The end of the input ends the process,
 * whatever its threads wait for.
 *
 * <p>{@code parked} is answered by the reader itself, since the thread that it asks about is busy: true, if that thread
 * waits for a lock and has nothing under way at Redis.
 */
public final class Peer {
    private final Commands commands;
    private final PrintStream out;
    private final Map<String, Worker> workers = new ConcurrentHashMap<>();

    private Peer(List<RedissonClient> clients, PrintStream out) {
        this.commands = new Commands(clients);
        this.out = out;
    }

    /**
     * Arguments: {@code single}, {@code cluster}, {@code cluster-plain}, or {@code masters} that know nothing of each other;
     * the watchdog's milliseconds; and addresses.
     */
    public static void main(String[] args) throws IOException {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        String topology = args[0];
        long watchdog = Long.parseLong(args[1]);
        String[] addresses = Arrays.copyOfRange(args, 2, args.length);
        Stream<Config> configs = topology.equals("masters")
                ? Arrays.stream(addresses).map(address -> config("single", watchdog, address))
                : Stream.of(config(topology, watchdog, addresses));
        Peer peer = new Peer(configs.map(Redisson::create).toList(), out);
        out.println("ready");
        peer.serve(new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)));
        Runtime.getRuntime().halt(0); // an orderly shutdown would wait for threads that wait for locks
    }

    private static Config config(String topology, long watchdog, String... addresses) {
        Config config = new Config();
        config.setThreads(8).setNettyThreads(4).setLockWatchdogTimeout(watchdog);
        switch (topology) {
            case "single" -> config.useSingleServer().setAddress(addresses[0])
                    .setConnectionMinimumIdleSize(2).setConnectionPoolSize(16);
            case "cluster", "cluster-plain" -> config.useClusterServers().addNodeAddress(addresses)
                    .setReadMode(ReadMode.MASTER) // a replica may not have heard yet of what is counted
                    .setShardedSubscriptionMode(topology.equals("cluster")
                            ? ShardedSubscriptionMode.AUTO
                            : ShardedSubscriptionMode.OFF)
                    .setMasterConnectionMinimumIdleSize(2).setMasterConnectionPoolSize(16)
                    .setSlaveConnectionMinimumIdleSize(1).setSlaveConnectionPoolSize(4);
            default -> throw new IllegalArgumentException("unknown topology " + topology);
        }
        return config;
    }

    private void serve(BufferedReader in) throws IOException {
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            String id = words[0];
            Worker worker = workers.computeIfAbsent(words[1], Worker::new);
            String command = words[2];
            String[] args = Arrays.copyOfRange(words, 3, words.length);
            if (command.equals("parked")) {
                out.println(id + " ok " + worker.parked());
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
