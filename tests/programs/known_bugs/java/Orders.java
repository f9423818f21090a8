import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import sun.misc.Signal;

/**
 * Sends numbered orders to one topic until SIGTERM, and prints those that are acknowledged.
 *
 * <pre>java Orders BOOTSTRAP TOPIC</pre>
 *
 * The producer has default settings, which make it idempotent since Kafka 3.0. In kafka-clients 3.0.0 and 3.1.0 they do
 * not, contrary to the documentation (KAFKA-13598). An order that fails ends the program with exit code 1.
 */
public final class Orders {
    private Orders() {}

    public static void main(String[] arguments) throws InterruptedException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("client.id", "java-orders");
        AtomicBoolean stopped = new AtomicBoolean();
        Signal.handle(new Signal("TERM"), signal -> stopped.set(true));
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; !stopped.get(); number++) {
                String order = "order " + number;
                producer.send(new ProducerRecord<>(arguments[1], order), (place, error) -> {
                    if (error != null) {
                        System.err.println(error);
                        Runtime.getRuntime().halt(1);
                    }
                    System.out.println("acknowledged " + order);
                });
                Thread.sleep(5);
            }
        }
    }
}
