import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import sun.misc.Signal;

/**
 * Sends numbered orders to one topic until SIGTERM, and then prints how many were acknowledged.
 *
 * <pre>java Orders BOOTSTRAP TOPIC</pre>
 *
 * The producer is idempotent, with five requests in flight. An order that fails ends the program with exit code 1.
 */
public final class Orders {
    private Orders() {}

    public static void main(String[] arguments) throws InterruptedException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("client.id", "java-orders");
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        AtomicBoolean stopped = new AtomicBoolean();
        Signal.handle(new Signal("TERM"), signal -> stopped.set(true));
        AtomicInteger acknowledged = new AtomicInteger();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; !stopped.get(); number++) {
                producer.send(new ProducerRecord<>(arguments[1], "order " + number), (place, error) -> {
                    if (error != null) {
                        System.err.println(error);
                        Runtime.getRuntime().halt(1);
                    }
                    acknowledged.incrementAndGet();
                });
                Thread.sleep(2);
            }
        }
        System.out.println("acknowledged " + acknowledged.get());
    }
}
