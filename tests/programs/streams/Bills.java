import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Bills of customers: each order "customer/order" of the input is one bill "customer/order/number" of the output, where
 * number counts the orders of the customer in a state store. The orders are grouped by customer, which is not the key of
 * the input, so that there are a repartition topic and a changelog.
 *
 * Arguments: bootstrap servers, application id, input, output, protocol (streams or classic), processing guarantee,
 * folder of the state, name of the instance. SIGTERM ends it.
 */
public final class Bills {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("application.id", args[1]);
        settings.put("client.id", args[7]);
        settings.put("group.protocol", args[4]);
        settings.put("processing.guarantee", args[5]);
        settings.put("state.dir", Path.of(args[6], args[7]).toString());
        settings.put("num.stream.threads", "1");
        settings.put("replication.factor", "-1");
        settings.put("commit.interval.ms", "100");
        settings.put("consumer.auto.offset.reset", "earliest");
        if (args[4].equals("classic")) {
            settings.put("consumer.session.timeout.ms", "10000");
        }
        settings.put("producer.transaction.timeout.ms", "10000");
        settings.put("statestore.cache.max.bytes", "0");
        // the test reads the repartition topic, too
        settings.put("repartition.purge.interval.ms", "86400000");

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[2], Consumed.with(Serdes.String(), Serdes.String()))
            .groupBy((key, order) -> order.substring(0, order.indexOf('/')), Grouped.with("by-customer", Serdes.String(), Serdes.String()))
            .aggregate(
                () -> "0 ",
                (customer, order, before) -> (Integer.parseInt(before.substring(0, before.indexOf(' '))) + 1) + " " + order,
                Materialized.<String, String, org.apache.kafka.streams.state.KeyValueStore<org.apache.kafka.common.utils.Bytes, byte[]>>as("counts")
                    .withKeySerde(Serdes.String()).withValueSerde(Serdes.String()))
            .toStream()
            .mapValues(text -> text.substring(text.indexOf(' ') + 1) + "/" + text.substring(0, text.indexOf(' ')))
            .to(args[3], Produced.with(Serdes.String(), Serdes.String()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(20));
            System.out.println("closed");
            System.out.flush();
            ended.countDown();
        }));
        streams.start();
        ended.await();
    }
}
